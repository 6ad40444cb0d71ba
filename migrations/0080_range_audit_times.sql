-- Between which times the lines of the audit lie, for each thousand positions of its chain: lines are sealed in the order
-- of their commits, and whoever adds a line chooses its time, so no index finds where the lines of a moment begin or end.
-- A search reads these rows, a thousandth of the lines, and the lines of one range; it read all lines after, or before,
-- the moment. About a second per million lines, in which nobody seals, and as much for the index, in which writers of the
-- audit wait.
--
-- The rows are made by triggers, with the rights of the owner of the tables, so a release before this one keeps them too,
-- and a role that runs servers cannot write them.

CREATE TABLE audit_time_ranges (
    -- Positions 1 to 1000 are range 0.
    range_id bigint PRIMARY KEY CHECK (range_id >= 0),
    earliest timestamptz NOT NULL,
    latest timestamptz NOT NULL
);

CREATE FUNCTION range_audit_times() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit_time_ranges AS known (range_id, earliest, latest)
    SELECT (added.position - 1) / 1000, min(line.done_at), max(line.done_at)
    FROM added JOIN audit AS line ON line.audit_id = added.audit_id GROUP BY 1
    ON CONFLICT (range_id) DO UPDATE SET
        earliest = LEAST(known.earliest, excluded.earliest), latest = GREATEST(known.latest, excluded.latest);
    RETURN NULL;
END
$$;
CREATE FUNCTION forget_audit_times() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    DELETE FROM audit_time_ranges WHERE range_id < (SELECT start.position / 1000 FROM audit_start AS start);
    RETURN NULL;
END
$$;
-- A caller's temporary tables must not stand for these.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION range_audit_times SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION forget_audit_times SET search_path = %I, pg_temp', current_schema());
END
$$;
-- Before the lines that there are: from here to the end of the migration nobody seals one.
CREATE TRIGGER seals_are_ranged AFTER INSERT ON audit_seals
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION range_audit_times();
CREATE TRIGGER pruned_ranges_are_forgotten AFTER DELETE ON audit_seals
    FOR EACH STATEMENT EXECUTE FUNCTION forget_audit_times();
INSERT INTO audit_time_ranges (range_id, earliest, latest)
SELECT (seal.position - 1) / 1000, min(line.done_at), max(line.done_at)
FROM audit_seals AS seal JOIN audit AS line ON line.audit_id = seal.audit_id GROUP BY 1;

-- Lines of one time are told apart by their ids, so that the first and the last line of a moment are at the index's ends.
DROP INDEX audit_by_time;
CREATE INDEX audit_by_time ON audit (done_at, audit_id);
