-- What every GPU did at each minute, so that idle time has its causes, and what the useful work was of the healthy GPUs' peak. Columns of earlier minutes stay
-- empty: nobody counted them.
ALTER TABLE cluster_series
    ADD COLUMN gpus_starting integer,
    ADD COLUMN gpus_stopping integer,
    ADD COLUMN gpus_idle_no_demand integer,
    ADD COLUMN gpus_idle_waiting integer,
    ADD COLUMN gpus_withheld integer,
    ADD COLUMN gpus_unreachable integer,
    ADD COLUMN gpus_broken integer,
    ADD COLUMN goodput_mfu double precision;
