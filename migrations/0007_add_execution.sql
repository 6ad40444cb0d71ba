-- What a layout is beyond dp, tp and pp: NULL where it is plain, as all rows of earlier releases are. Earlier binaries leave it NULL.
ALTER TABLE job_series ADD COLUMN execution jsonb;
