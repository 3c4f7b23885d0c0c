-- What to do. name is the key.
CREATE TABLE IF NOT EXISTS {job} (
	name text COLLATE "C" NOT NULL PRIMARY KEY,
	job_group text COLLATE "C" NOT NULL,
	description text NOT NULL,
	handler text COLLATE "C" NOT NULL,
	data bytea,
	max_retries smallint NOT NULL,
	retry_delay bigint NOT NULL,
	retry_exponential smallint NOT NULL,
	retry_max_delay bigint NOT NULL,
	retry_jitter smallint NOT NULL,
	timeout bigint NOT NULL,
	allow_concurrent smallint NOT NULL,
	every_node smallint NOT NULL,
	recovery smallint NOT NULL,
	paused smallint NOT NULL,
	source text COLLATE "C" NOT NULL,
	code_hash text COLLATE "C" NOT NULL,
	version bigint NOT NULL,
	created_at bigint,
	updated_at bigint
);

-- One row a job, to be locked: by claims of jobs that do not allow concurrency, the ends
-- of their runs, and edits. It outlives the job.
CREATE TABLE IF NOT EXISTS {gate} (
	job text COLLATE "C" NOT NULL PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- Fencing tokens are made of its numbers.
CREATE SEQUENCE IF NOT EXISTS {fence};

-- When. Instants are microseconds since 1970 UTC; states and kinds are the numbers of
-- durable.TriggerState and durable.Kind.
CREATE TABLE IF NOT EXISTS {trigger} (
	id text COLLATE "C" NOT NULL PRIMARY KEY,
	job text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	handler text COLLATE "C" NOT NULL,
	kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 4),
	description text NOT NULL,
	schedule text NOT NULL,
	data bytea,
	priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 10),
	misfire smallint NOT NULL CHECK (misfire BETWEEN 0 AND 3),
	max_catch_up bigint NOT NULL,
	state smallint NOT NULL CHECK (state BETWEEN 0 AND 7),
	paused smallint NOT NULL CHECK (paused BETWEEN 0 AND 1),
	reason text NOT NULL,
	due_at bigint,
	prev_at bigint,
	fired bigint NOT NULL,
	passed bigint NOT NULL,
	version bigint NOT NULL,
	origin text COLLATE "C" NOT NULL,
	scheduled_at bigint,
	attempt bigint NOT NULL,
	retry_of text COLLATE "C" NOT NULL,
	idempotency_key text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS {prefix}trigger_job ON {trigger} (job, kind, name);

CREATE INDEX IF NOT EXISTS {prefix}trigger_due ON {trigger} (state, priority, due_at, id, handler);

CREATE INDEX IF NOT EXISTS {prefix}trigger_blocked ON {trigger} (job, priority DESC, due_at NULLS FIRST, id) WHERE state = 2;

-- Few ever are. Without it the planner takes what is complete, and has no due instant
-- either, for such, and hopes to come upon them as it reads all in order of the ID.
CREATE INDEX IF NOT EXISTS {prefix}trigger_undue ON {trigger} (id) WHERE state = 0 AND due_at IS NULL;

-- Active runs only.
CREATE TABLE IF NOT EXISTS {run} (
	id text COLLATE "C" NOT NULL PRIMARY KEY,
	job text COLLATE "C" NOT NULL,
	trigger_name text COLLATE "C" NOT NULL,
	kind smallint NOT NULL,
	state smallint NOT NULL,
	scheduled_at bigint,
	started_at bigint NOT NULL,
	ended_at bigint,
	duration bigint NOT NULL,
	node text COLLATE "C" NOT NULL,
	attempt bigint NOT NULL,
	retry_of text COLLATE "C" NOT NULL,
	idempotency_key text NOT NULL,
	data bytea,
	priority smallint NOT NULL,
	fence bigint NOT NULL,
	passed bigint NOT NULL,
	code text COLLATE "C" NOT NULL,
	message text NOT NULL,
	detail text NOT NULL,
	trigger_id text COLLATE "C" NOT NULL,
	is_held smallint NOT NULL,
	is_exclusive smallint NOT NULL,
	to_recover smallint NOT NULL,
	to_cancel smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS {prefix}run_job ON {run} (job);

-- Ended runs.
CREATE TABLE IF NOT EXISTS {history} (
	id text COLLATE "C" NOT NULL PRIMARY KEY,
	job text COLLATE "C" NOT NULL,
	trigger_name text COLLATE "C" NOT NULL,
	kind smallint NOT NULL,
	state smallint NOT NULL,
	scheduled_at bigint,
	started_at bigint NOT NULL,
	ended_at bigint,
	duration bigint NOT NULL,
	node text COLLATE "C" NOT NULL,
	attempt bigint NOT NULL,
	retry_of text COLLATE "C" NOT NULL,
	idempotency_key text NOT NULL,
	data bytea,
	priority smallint NOT NULL,
	fence bigint NOT NULL,
	passed bigint NOT NULL,
	code text COLLATE "C" NOT NULL,
	message text NOT NULL,
	detail text NOT NULL
);

CREATE INDEX IF NOT EXISTS {prefix}history_started ON {history} (started_at);

CREATE INDEX IF NOT EXISTS {prefix}history_job ON {history} (job, started_at);

-- Processes.
CREATE TABLE IF NOT EXISTS {node} (
	id text COLLATE "C" NOT NULL PRIMARY KEY,
	name text COLLATE "C" NOT NULL,
	started_at bigint,
	heartbeat_at bigint,
	lease_until bigint,
	dead smallint NOT NULL
);

-- Leadership and the like.
CREATE TABLE IF NOT EXISTS {lease} (
	name text COLLATE "C" NOT NULL PRIMARY KEY,
	holder text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	lease_until bigint
);
