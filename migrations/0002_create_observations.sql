-- What was seen, not decided. Written in batches off the loop; a crash may lose the last second of it.

-- What reports have taught about a job, so that a restarted scheduler does not forget its noise scale and speed.
CREATE TABLE job_models (
    job_id uuid PRIMARY KEY,
    updated_at timestamptz NOT NULL,
    body jsonb NOT NULL
);

-- Sums over an interval at three resolutions (10 s, 1 min, 1 h), each written as reports arrive, so that pruning
-- the finer ones loses nothing of the coarser ones and no roll-up job exists.
CREATE TABLE job_series (
    job_id uuid NOT NULL,
    resolution_seconds integer NOT NULL CHECK (resolution_seconds IN (10, 60, 3600)),
    bucket_at timestamptz NOT NULL,
    generation bigint NOT NULL,
    gpus integer NOT NULL,
    dp integer NOT NULL,
    tp integer NOT NULL,
    pp integer NOT NULL,
    micro_batch_sequences bigint NOT NULL,
    global_batch_sequences bigint NOT NULL,
    last_step bigint NOT NULL,
    samples_seen bigint NOT NULL,
    steps bigint NOT NULL,
    tokens double precision NOT NULL,
    -- Tokens × statistical efficiency.
    reference_tokens double precision NOT NULL,
    duration_seconds double precision NOT NULL,
    -- Newest values of the interval.
    noise_scale_tokens double precision,
    loss double precision,
    PRIMARY KEY (job_id, resolution_seconds, bucket_at, generation)
);
-- Pruning by age.
CREATE INDEX job_series_by_age ON job_series (resolution_seconds, bucket_at);
