-- "The failed jobs of this project": without this index the newest page is found by reading jobs of all projects and states, newest first, until there are enough.
CREATE INDEX jobs_by_project_and_state ON jobs (project, state, job_id DESC);
