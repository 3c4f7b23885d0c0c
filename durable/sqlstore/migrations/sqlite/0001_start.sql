-- What to do. name is the key.
CREATE TABLE IF NOT EXISTS {job} (
	name TEXT NOT NULL PRIMARY KEY,
	job_group TEXT NOT NULL,
	description TEXT NOT NULL,
	handler TEXT NOT NULL,
	data BLOB,
	max_retries INTEGER NOT NULL,
	retry_delay INTEGER NOT NULL,
	retry_exponential INTEGER NOT NULL,
	retry_max_delay INTEGER NOT NULL,
	retry_jitter INTEGER NOT NULL,
	timeout INTEGER NOT NULL,
	allow_concurrent INTEGER NOT NULL,
	every_node INTEGER NOT NULL,
	recovery INTEGER NOT NULL,
	paused INTEGER NOT NULL,
	source TEXT NOT NULL,
	code_hash TEXT NOT NULL,
	version INTEGER NOT NULL,
	created_at INTEGER,
	updated_at INTEGER
);

-- One row a job, to be locked: by claims of jobs that do not allow concurrency, the ends
-- of their runs, and edits. It outlives the job.
CREATE TABLE IF NOT EXISTS {gate} (
	job TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- The last number that was taken. Fencing tokens are made of them.
CREATE TABLE IF NOT EXISTS {fence} (
	number INTEGER NOT NULL
);

INSERT INTO {fence} (number) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {fence});

-- When. Instants are microseconds since 1970 UTC; states and kinds are the numbers of
-- durable.TriggerState and durable.Kind.
CREATE TABLE IF NOT EXISTS {trigger} (
	id TEXT NOT NULL PRIMARY KEY,
	job TEXT NOT NULL,
	name TEXT NOT NULL,
	handler TEXT NOT NULL,
	kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 4),
	description TEXT NOT NULL,
	schedule TEXT NOT NULL,
	data BLOB,
	priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 10),
	misfire INTEGER NOT NULL CHECK (misfire BETWEEN 0 AND 3),
	max_catch_up INTEGER NOT NULL,
	state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),
	paused INTEGER NOT NULL CHECK (paused BETWEEN 0 AND 1),
	reason TEXT NOT NULL,
	due_at INTEGER,
	prev_at INTEGER,
	fired INTEGER NOT NULL,
	passed INTEGER NOT NULL,
	version INTEGER NOT NULL,
	origin TEXT NOT NULL,
	scheduled_at INTEGER,
	attempt INTEGER NOT NULL,
	retry_of TEXT NOT NULL,
	idempotency_key TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS {prefix}trigger_job ON {trigger} (job, kind, name);

CREATE INDEX IF NOT EXISTS {prefix}trigger_due ON {trigger} (state, priority, due_at, id, handler);

CREATE INDEX IF NOT EXISTS {prefix}trigger_blocked ON {trigger} (job, priority DESC, due_at, id) WHERE state = 2;

-- Active runs only.
CREATE TABLE IF NOT EXISTS {run} (
	id TEXT NOT NULL PRIMARY KEY,
	job TEXT NOT NULL,
	trigger_name TEXT NOT NULL,
	kind INTEGER NOT NULL,
	state INTEGER NOT NULL,
	scheduled_at INTEGER,
	started_at INTEGER NOT NULL,
	ended_at INTEGER,
	duration INTEGER NOT NULL,
	node TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	retry_of TEXT NOT NULL,
	idempotency_key TEXT NOT NULL,
	data BLOB,
	priority INTEGER NOT NULL,
	fence INTEGER NOT NULL,
	passed INTEGER NOT NULL,
	code TEXT NOT NULL,
	message TEXT NOT NULL,
	detail TEXT NOT NULL,
	trigger_id TEXT NOT NULL,
	is_held INTEGER NOT NULL,
	is_exclusive INTEGER NOT NULL,
	to_recover INTEGER NOT NULL,
	to_cancel INTEGER NOT NULL
);

CREATE INDEX IF NOT EXISTS {prefix}run_job ON {run} (job, id);

-- Ended runs.
CREATE TABLE IF NOT EXISTS {history} (
	id TEXT NOT NULL PRIMARY KEY,
	job TEXT NOT NULL,
	trigger_name TEXT NOT NULL,
	kind INTEGER NOT NULL,
	state INTEGER NOT NULL,
	scheduled_at INTEGER,
	started_at INTEGER NOT NULL,
	ended_at INTEGER,
	duration INTEGER NOT NULL,
	node TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	retry_of TEXT NOT NULL,
	idempotency_key TEXT NOT NULL,
	data BLOB,
	priority INTEGER NOT NULL,
	fence INTEGER NOT NULL,
	passed INTEGER NOT NULL,
	code TEXT NOT NULL,
	message TEXT NOT NULL,
	detail TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS {prefix}history_started ON {history} (started_at, id);

CREATE INDEX IF NOT EXISTS {prefix}history_job ON {history} (job, started_at, id);

-- Processes.
CREATE TABLE IF NOT EXISTS {node} (
	id TEXT NOT NULL PRIMARY KEY,
	name TEXT NOT NULL,
	started_at INTEGER,
	heartbeat_at INTEGER,
	lease_until INTEGER,
	dead INTEGER NOT NULL
) WITHOUT ROWID;

-- Leadership and the like.
CREATE TABLE IF NOT EXISTS {lease} (
	name TEXT NOT NULL PRIMARY KEY,
	holder TEXT NOT NULL,
	token INTEGER NOT NULL,
	lease_until INTEGER
) WITHOUT ROWID;
