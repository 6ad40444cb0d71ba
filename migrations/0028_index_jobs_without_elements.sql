-- Lists with one row per array: the jobs of no array, and of each array the first element, newest first. Without these a page is found by reading all elements
-- of all arrays that are newer.
CREATE INDEX jobs_of_no_array ON jobs (job_id DESC) WHERE array_id IS NULL;
CREATE INDEX jobs_first_of_array ON jobs (job_id DESC) WHERE array_place = 0;
