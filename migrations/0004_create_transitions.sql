-- When each job, node, allocation and plan was in which state, so that any past moment can be shown again. The event
-- log tells what happened in words; it cannot answer "what was running at 14:02" without being replayed from its
-- beginning. Written in the transaction of the change itself, so the two never disagree. What was there before this
-- migration enters its history with its next change.
--
-- A row is valid from `valid_from` (inclusive) to `valid_to` (exclusive); the present one has no end. The indexes by
-- range answer "as of T" and leave out what is over for good: a history that grows for years must not slow down the
-- look at one moment. They are GiST because neither end of a range alone narrows the search.

CREATE TABLE job_transitions (
    job_id uuid NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    state text NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (job_id, valid_from)
);
CREATE INDEX job_transitions_by_moment ON job_transitions USING gist (tstzrange(valid_from, valid_to))
    WHERE state NOT IN ('succeeded', 'failed', 'cancelled');

CREATE TABLE node_transitions (
    node_id uuid NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    availability text NOT NULL,
    policy text NOT NULL,
    standing text NOT NULL,
    gpus integer NOT NULL,
    healthy_gpus integer NOT NULL,
    PRIMARY KEY (node_id, valid_from)
);
CREATE INDEX node_transitions_by_moment ON node_transitions USING gist (tstzrange(valid_from, valid_to));

CREATE TABLE allocation_transitions (
    job_id uuid NOT NULL,
    generation bigint NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    phase text NOT NULL,
    -- Not yet proven free.
    gpus integer NOT NULL,
    PRIMARY KEY (job_id, generation, valid_from)
);
CREATE INDEX allocation_transitions_by_moment ON allocation_transitions USING gist (tstzrange(valid_from, valid_to))
    WHERE phase <> 'ended' OR gpus > 0;

CREATE TABLE plan_transitions (
    plan_id uuid NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    state text NOT NULL,
    PRIMARY KEY (plan_id, valid_from)
);
CREATE INDEX plan_transitions_by_moment ON plan_transitions USING gist (tstzrange(valid_from, valid_to))
    WHERE state IN ('proposed', 'adopted');
