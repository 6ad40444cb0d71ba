-- Once a minute: predictions whose last decile has passed since, and whose start has not come.
CREATE INDEX predicted_starts_by_end ON predicted_starts (p90_at);
