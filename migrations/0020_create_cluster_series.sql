-- What the cluster did, minute by minute: figures that only the moment knows and no later question can rebuild. A minute in which
-- nobody led has no row.
CREATE TABLE cluster_series (
    sampled_at timestamptz PRIMARY KEY,
    gpus_total integer NOT NULL,
    gpus_healthy integer NOT NULL,
    gpus_busy integer NOT NULL,
    gpus_training integer NOT NULL,
    jobs_waiting integer NOT NULL,
    jobs_running integer NOT NULL,
    gpus_waited_for integer NOT NULL,
    goodput_tokens_per_second double precision NOT NULL,
    speed_up_sum double precision NOT NULL
);
