-- Lists of jobs are filtered by label, searched by a part of the name and sorted by name or end, at 100,000 jobs and more. The columns are
-- generated from the record, so that rows written by the binary before this one have them too; Postgres writes the table anew for it, about a
-- second per 20,000 jobs, for which commits wait.
ALTER TABLE jobs
    ADD COLUMN labels jsonb GENERATED ALWAYS AS (COALESCE(body #> '{spec,labels}', '{}'::jsonb)) STORED,
    ADD COLUMN ended_at timestamptz GENERATED ALWAYS AS (
        CASE WHEN state IN ('succeeded', 'failed', 'cancelled')
            THEN to_timestamp((body #>> '{state,at}')::double precision / 1000000) END
    ) STORED;
CREATE INDEX jobs_by_label ON jobs USING gin (labels);
CREATE INDEX jobs_by_name ON jobs (name, job_id DESC);
CREATE INDEX jobs_by_end ON jobs (ended_at, job_id) WHERE ended_at IS NOT NULL;

-- A part of a name is found by its trigrams. The extension comes with Postgres, but some packages leave it out: without it a search reads all names.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX jobs_by_part_of_name ON jobs USING gin (name gin_trgm_ops);
EXCEPTION WHEN undefined_file OR feature_not_supported OR insufficient_privilege OR undefined_object THEN
    RAISE NOTICE 'pg_trgm cannot be had: searching names reads all of them';
END
$$;
