-- One table of what was in which state when, instead of four that were written and read by nobody: a look at a past
-- moment is one query, and a commit writes its transitions in one.
--
-- A row is valid from `valid_from` (inclusive) to `valid_to` (exclusive); the present one has no end. A row that ends as
-- it begins says that its subject is over for good (a job has ended, a plan was superseded, an allocation is proven
-- free): no look at a moment shows it, a look at that subject does.
--
-- Expand and backfill. A server migrates before it leads, so the previous binary may lead for a while after this: it goes
-- on writing to the former tables, and triggers carry its rows over. They stay, unwritten by this release, and the next
-- one drops them with the triggers. Creating the triggers and copying happen in one transaction, so no row falls
-- between; commits of the previous binary wait for its end, about half a minute per million rows (key and index are
-- built last, which takes a third of the time). What ended more than 90 days ago is not copied: it would be pruned at
-- once.

CREATE TABLE transitions (
    subject text NOT NULL CHECK (subject IN ('job', 'node', 'allocation', 'plan')),
    -- Of an allocation, its job.
    subject_id uuid NOT NULL,
    -- Of an allocation; 0 of all others.
    generation bigint NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    -- What was entered, as the engine says it.
    entered jsonb NOT NULL
);

-- A former row's key and content in the form of the new table.
CREATE FUNCTION transition_of(subject text, former jsonb) RETURNS transitions LANGUAGE sql AS $$
    SELECT subject,
        COALESCE(former ->> 'job_id', former ->> 'node_id', former ->> 'plan_id')::uuid,
        CASE subject WHEN 'allocation' THEN (former ->> 'generation')::bigint ELSE 0 END,
        (former ->> 'valid_from')::timestamptz,
        COALESCE((former ->> 'valid_to')::timestamptz, CASE
            WHEN former ->> 'state' IN ('succeeded', 'failed', 'cancelled', 'superseded', 'rejected', 'stale')
                OR former ->> 'phase' = 'ended' AND (former ->> 'gpus')::integer = 0
            THEN (former ->> 'valid_from')::timestamptz END),
        jsonb_strip_nulls(jsonb_build_object('subject', subject, 'job', former -> 'job_id', 'node', former -> 'node_id',
            'plan', former -> 'plan_id', 'healthy', former -> 'healthy_gpus'))
            || (former - '{job_id,node_id,plan_id,healthy_gpus,valid_from,valid_to}'::text[])
$$;

CREATE FUNCTION carry_transition_over() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    new_row transitions := transition_of(TG_ARGV[0], to_jsonb(NEW));
BEGIN
    UPDATE transitions SET valid_to = new_row.valid_from
    WHERE subject = new_row.subject AND subject_id = new_row.subject_id AND generation = new_row.generation
        AND valid_to IS NULL AND valid_from < new_row.valid_from;
    INSERT INTO transitions SELECT new_row.*
    ON CONFLICT (subject, subject_id, generation, valid_from) DO UPDATE SET
        valid_to = COALESCE(transitions.valid_to, excluded.valid_to), entered = excluded.entered;
    RETURN NULL;
END
$$;
CREATE TRIGGER carry_over AFTER INSERT OR UPDATE ON job_transitions
    FOR EACH ROW EXECUTE FUNCTION carry_transition_over('job');
CREATE TRIGGER carry_over AFTER INSERT OR UPDATE ON node_transitions
    FOR EACH ROW EXECUTE FUNCTION carry_transition_over('node');
CREATE TRIGGER carry_over AFTER INSERT OR UPDATE ON allocation_transitions
    FOR EACH ROW EXECUTE FUNCTION carry_transition_over('allocation');
CREATE TRIGGER carry_over AFTER INSERT OR UPDATE ON plan_transitions
    FOR EACH ROW EXECUTE FUNCTION carry_transition_over('plan');

INSERT INTO transitions
SELECT (moved).* FROM (
    SELECT transition_of('job', to_jsonb(former)) AS moved FROM job_transitions AS former
    UNION ALL SELECT transition_of('node', to_jsonb(former)) FROM node_transitions AS former
    UNION ALL SELECT transition_of('allocation', to_jsonb(former)) FROM allocation_transitions AS former
    UNION ALL SELECT transition_of('plan', to_jsonb(former)) FROM plan_transitions AS former
) AS all_former
WHERE (moved).valid_to IS NULL OR (moved).valid_to > now() - interval '90 days';

ALTER TABLE transitions ADD PRIMARY KEY (subject, subject_id, generation, valid_from);
-- For a look at one moment (ranges that contain it) and for pruning (ranges before it). With both ends included, a row
-- that ends as it begins has a range too; half open it would be empty, and pruning would never find it.
CREATE INDEX transitions_by_moment ON transitions USING gist (tstzrange(valid_from, valid_to, '[]'));
