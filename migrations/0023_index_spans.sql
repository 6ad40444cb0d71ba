-- The timeline asks which jobs were there, and what was held, within a span of the past: at 100,000 jobs an hour of a month ago took a quarter of a second
-- and most of both tables. Neither end of a span alone narrows the search, so the indexes are GiST, as that of transitions. About seven seconds per 100,000
-- jobs, for which commits wait.
CREATE INDEX jobs_by_span ON jobs USING gist (tstzrange(submitted_at, GREATEST(ended_at, submitted_at), '[]'))
    WHERE state IN ('succeeded', 'failed', 'cancelled');
CREATE INDEX allocations_by_span ON allocations USING gist (tstzrange(granted_at, GREATEST(ended_at, granted_at), '[]'))
    WHERE ended_at IS NOT NULL;
