-- Goodput over time, against a static split of the same jobs, and how predictions turned out. What only the moment knows is kept by the minute; what a decision
-- expected and what came of it is written in the transaction that ends the expectation. Columns of earlier minutes stay empty: nobody measured them.
ALTER TABLE cluster_series ADD COLUMN throughput_tokens_per_second double precision;
ALTER TABLE cluster_series ADD COLUMN baseline_tokens_per_second double precision;

-- The same of projects whose jobs run or would run on a static split. A minute that `cluster_series` has and this has not was one of nothing.
CREATE TABLE project_series (
    sampled_at timestamptz NOT NULL,
    project text NOT NULL,
    gpus_busy integer NOT NULL,
    jobs_running integer NOT NULL,
    goodput_tokens_per_second double precision NOT NULL,
    throughput_tokens_per_second double precision NOT NULL,
    baseline_tokens_per_second double precision,
    PRIMARY KEY (sampled_at, project)
);

-- An expectation per configuration of a generation.
CREATE TABLE realised_goodput (
    job_id uuid NOT NULL,
    generation bigint NOT NULL,
    revision bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    gpu_type text NOT NULL,
    model_family text NOT NULL,
    gpus integer NOT NULL,
    predicted_tokens_per_second double precision NOT NULL,
    -- First and last decile; empty where nobody said how sure it was.
    low_tokens_per_second double precision,
    high_tokens_per_second double precision,
    realised_tokens_per_second double precision NOT NULL,
    measured_seconds double precision NOT NULL,
    PRIMARY KEY (job_id, generation, revision)
);
CREATE INDEX realised_goodput_by_age ON realised_goodput (ended_at);

-- The first start that was predicted of each wait; when it came is in `allocations`. Predictions decide nothing and are written as they are made.
CREATE TABLE predicted_starts (
    job_id uuid NOT NULL,
    -- The newest when it was made: the start is a later one's.
    generation bigint NOT NULL,
    made_at timestamptz NOT NULL,
    model_family text NOT NULL,
    p10_at timestamptz NOT NULL,
    -- Empty: later than was looked.
    p50_at timestamptz,
    p90_at timestamptz,
    PRIMARY KEY (job_id, generation)
);
CREATE INDEX predicted_starts_by_age ON predicted_starts (made_at);
