-- Whoever looks at a job is told who waits for it, also of jobs that have ended. The ids never change once a job is admitted, and are null where it
-- waits for nobody, as in every row of the binary before this one. A column without a default is added at once, whatever the table holds.
ALTER TABLE jobs ADD COLUMN depends_on uuid[];
CREATE INDEX jobs_by_dependency ON jobs USING gin (depends_on) WHERE depends_on IS NOT NULL;
