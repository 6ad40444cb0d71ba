-- Goodput beside more than the static split (`baseline_tokens_per_second`): first come, first served, and a planner for throughput alone. Of earlier
-- minutes nobody worked them out.
ALTER TABLE cluster_series
    ADD COLUMN first_come_tokens_per_second double precision,
    ADD COLUMN throughput_only_tokens_per_second double precision;
ALTER TABLE project_series
    ADD COLUMN first_come_tokens_per_second double precision,
    ADD COLUMN throughput_only_tokens_per_second double precision;
