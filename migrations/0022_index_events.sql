-- The log is searched by kind, actor, plan, project and time, at ten million events and more: each filter has an index in the order of the log, so that
-- a page is read from where it begins. The project of an event is that of its job, written with the event, since a search by project would otherwise
-- look at every job the project ever had. Events that are there get theirs now and the indexes are built after it, about half a minute per million
-- events, for which commits wait. An event that a binary of before writes meanwhile has no project and is found by everything else.
ALTER TABLE events ADD COLUMN project text;
UPDATE events SET project = jobs.project FROM jobs WHERE jobs.job_id = events.job_id;

CREATE INDEX events_by_project ON events (project, seq) WHERE project IS NOT NULL;
CREATE INDEX events_by_plan ON events (plan_id, seq) WHERE plan_id IS NOT NULL;
CREATE INDEX events_by_verb ON events (verb, seq);
-- "user:ada", "scheduler", "node:<id>".
CREATE INDEX events_by_actor ON events (((body #>> '{actor,actor}') || COALESCE(':' || (body #>> '{actor,name}'), '')), seq);
-- Times never fall from one event to the next, so a moment is a place in the log.
CREATE INDEX events_by_time ON events (happened_at, seq);
