-- What to do. name is the key.
CREATE TABLE IF NOT EXISTS {job} (
	name VARBINARY(512) NOT NULL PRIMARY KEY,
	job_group TEXT NOT NULL,
	description TEXT NOT NULL,
	handler VARBINARY(512) NOT NULL,
	data LONGBLOB,
	max_retries SMALLINT NOT NULL,
	retry_delay BIGINT NOT NULL,
	retry_exponential SMALLINT NOT NULL,
	retry_max_delay BIGINT NOT NULL,
	retry_jitter SMALLINT NOT NULL,
	timeout BIGINT NOT NULL,
	allow_concurrent SMALLINT NOT NULL,
	every_node SMALLINT NOT NULL,
	recovery SMALLINT NOT NULL,
	paused SMALLINT NOT NULL,
	source VARBINARY(512) NOT NULL,
	code_hash VARBINARY(512) NOT NULL,
	version BIGINT NOT NULL,
	created_at BIGINT,
	updated_at BIGINT
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- One row a job, to be locked: by claims of jobs that do not allow concurrency, the ends
-- of their runs, and edits. It outlives the job.
CREATE TABLE IF NOT EXISTS {gate} (
	job VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Gives numbers, of which fencing tokens are made. It is empty: nobody waits for the next
-- value of its key.
CREATE TABLE IF NOT EXISTS {fence} (
	number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- When. Instants are microseconds since 1970 UTC; states and kinds are the numbers of
-- durable.TriggerState and durable.Kind.
CREATE TABLE IF NOT EXISTS {trigger} (
	id VARBINARY(64) NOT NULL PRIMARY KEY,
	job VARBINARY(512) NOT NULL,
	name VARBINARY(512) NOT NULL,
	handler VARBINARY(512) NOT NULL,
	kind SMALLINT NOT NULL CHECK (kind BETWEEN 0 AND 4),
	description TEXT NOT NULL,
	schedule TEXT NOT NULL,
	data LONGBLOB,
	priority SMALLINT NOT NULL CHECK (priority BETWEEN 0 AND 10),
	misfire SMALLINT NOT NULL CHECK (misfire BETWEEN 0 AND 3),
	max_catch_up BIGINT NOT NULL,
	state SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 7),
	paused SMALLINT NOT NULL CHECK (paused BETWEEN 0 AND 1),
	reason TEXT NOT NULL,
	due_at BIGINT,
	prev_at BIGINT,
	fired BIGINT NOT NULL,
	passed BIGINT NOT NULL,
	version BIGINT NOT NULL,
	origin VARBINARY(512) NOT NULL,
	scheduled_at BIGINT,
	attempt BIGINT NOT NULL,
	retry_of VARBINARY(64) NOT NULL,
	idempotency_key TEXT NOT NULL,
	INDEX {prefix}trigger_job (job, kind, name),
	INDEX {prefix}trigger_due (state, priority, due_at, id, handler),
	INDEX {prefix}trigger_blocked (state, job, priority DESC, due_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Active runs only.
CREATE TABLE IF NOT EXISTS {run} (
	id VARBINARY(64) NOT NULL PRIMARY KEY,
	job VARBINARY(512) NOT NULL,
	trigger_name VARBINARY(512) NOT NULL,
	kind SMALLINT NOT NULL,
	state SMALLINT NOT NULL,
	scheduled_at BIGINT,
	started_at BIGINT NOT NULL,
	ended_at BIGINT,
	duration BIGINT NOT NULL,
	node VARBINARY(512) NOT NULL,
	attempt BIGINT NOT NULL,
	retry_of VARBINARY(64) NOT NULL,
	idempotency_key TEXT NOT NULL,
	data LONGBLOB,
	priority SMALLINT NOT NULL,
	fence BIGINT NOT NULL,
	passed BIGINT NOT NULL,
	code VARBINARY(512) NOT NULL,
	message TEXT NOT NULL,
	detail TEXT NOT NULL,
	trigger_id VARBINARY(64) NOT NULL,
	is_held SMALLINT NOT NULL,
	is_exclusive SMALLINT NOT NULL,
	to_recover SMALLINT NOT NULL,
	to_cancel SMALLINT NOT NULL,
	INDEX {prefix}run_job (job, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Ended runs.
CREATE TABLE IF NOT EXISTS {history} (
	id VARBINARY(64) NOT NULL PRIMARY KEY,
	job VARBINARY(512) NOT NULL,
	trigger_name VARBINARY(512) NOT NULL,
	kind SMALLINT NOT NULL,
	state SMALLINT NOT NULL,
	scheduled_at BIGINT,
	started_at BIGINT NOT NULL,
	ended_at BIGINT,
	duration BIGINT NOT NULL,
	node VARBINARY(512) NOT NULL,
	attempt BIGINT NOT NULL,
	retry_of VARBINARY(64) NOT NULL,
	idempotency_key TEXT NOT NULL,
	data LONGBLOB,
	priority SMALLINT NOT NULL,
	fence BIGINT NOT NULL,
	passed BIGINT NOT NULL,
	code VARBINARY(512) NOT NULL,
	message TEXT NOT NULL,
	detail TEXT NOT NULL,
	INDEX {prefix}history_started (started_at, id),
	INDEX {prefix}history_job (job, started_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Processes.
CREATE TABLE IF NOT EXISTS {node} (
	id VARBINARY(512) NOT NULL PRIMARY KEY,
	name VARBINARY(512) NOT NULL,
	started_at BIGINT,
	heartbeat_at BIGINT,
	lease_until BIGINT,
	dead SMALLINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Leadership and the like.
CREATE TABLE IF NOT EXISTS {lease} (
	name VARBINARY(512) NOT NULL PRIMARY KEY,
	holder VARBINARY(512) NOT NULL,
	token BIGINT NOT NULL,
	lease_until BIGINT
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;
