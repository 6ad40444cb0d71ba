-- The facts of one cluster. Every record is kept whole in `body` (the engine reads it back unchanged); the typed
-- columns beside it are copies for constraints, listings and people with psql. Times come from the scheduler.

-- One row: whoever holds the newest term may write. Each commit locks this row and checks its term, so a server
-- that lost its leadership without noticing cannot change anything.
CREATE TABLE cluster (
    cluster_id boolean PRIMARY KEY DEFAULT true CHECK (cluster_id),
    term bigint NOT NULL CHECK (term >= 0),
    -- The plan that reconcile steers towards.
    target_plan_id uuid,
    -- Absent: the built-in policy.
    policy jsonb,
    last_event_seq bigint NOT NULL DEFAULT 0 CHECK (last_event_seq >= 0)
);
INSERT INTO cluster (term) VALUES (0);

CREATE TABLE jobs (
    -- UUIDv7: sorts by submission, which is the order of every listing and its cursor.
    job_id uuid PRIMARY KEY,
    name text NOT NULL,
    project text NOT NULL,
    owner text NOT NULL,
    state text NOT NULL CHECK (
        state IN ('queued', 'held', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'cancelled')
    ),
    generation bigint NOT NULL CHECK (generation >= 0),
    version bigint NOT NULL,
    submitted_at timestamptz NOT NULL,
    body jsonb NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, job_id DESC);
CREATE INDEX jobs_by_project ON jobs (project, job_id DESC);
CREATE INDEX jobs_by_owner ON jobs (owner, job_id DESC);

CREATE TABLE nodes (
    node_id uuid PRIMARY KEY,
    name text NOT NULL,
    policy text NOT NULL CHECK (policy IN ('schedulable', 'cordoned', 'draining')),
    availability text NOT NULL CHECK (availability IN ('registering', 'available', 'unreachable', 'lost')),
    registered_at timestamptz NOT NULL,
    body jsonb NOT NULL
);

CREATE TABLE allocations (
    job_id uuid NOT NULL REFERENCES jobs,
    generation bigint NOT NULL CHECK (generation > 0),
    plan_id uuid,
    gpus integer NOT NULL CHECK (gpus > 0),
    -- Some node has not yet proven that its processes are gone.
    holds boolean NOT NULL,
    granted_at timestamptz NOT NULL,
    ended_at timestamptz,
    body jsonb NOT NULL,
    PRIMARY KEY (job_id, generation)
);
-- What a restarted scheduler must load although the job may have ended.
CREATE INDEX allocations_holding ON allocations (job_id) WHERE holds;

CREATE TABLE checkpoints (
    job_id uuid NOT NULL REFERENCES jobs,
    generation bigint NOT NULL CHECK (generation > 0),
    step bigint NOT NULL CHECK (step >= 0),
    path text NOT NULL,
    committed_at timestamptz NOT NULL,
    body jsonb NOT NULL,
    PRIMARY KEY (job_id, generation, step)
);

CREATE TABLE plans (
    plan_id uuid PRIMARY KEY,
    parent_plan_id uuid,
    state text NOT NULL CHECK (state IN ('proposed', 'adopted', 'superseded', 'rejected', 'stale')),
    made_at timestamptz NOT NULL,
    decided_at timestamptz,
    body jsonb NOT NULL
);
-- Proposals are loaded at start; there are few.
CREATE INDEX plans_proposed ON plans (plan_id) WHERE state = 'proposed';

-- The event log: append only, numbered without gaps over all terms.
CREATE TABLE events (
    seq bigint PRIMARY KEY CHECK (seq > 0),
    happened_at timestamptz NOT NULL,
    verb text NOT NULL,
    job_id uuid,
    node_id uuid,
    plan_id uuid,
    body jsonb NOT NULL
);
CREATE INDEX events_by_job ON events (job_id, seq) WHERE job_id IS NOT NULL;
CREATE INDEX events_by_node ON events (node_id, seq) WHERE node_id IS NOT NULL;

-- Which jobs an idempotency key made; written in the transaction that makes them.
CREATE TABLE idempotency_keys (
    principal text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    request_hash text NOT NULL,
    job_ids uuid[] NOT NULL,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (principal, route, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (used_at);
