-- The audit grows for as long as a cluster lives. A server may prune its oldest lines, once they are older than
-- --audit-days, and a year old at least. The chain stays verifiable: audit_start keeps the position and the hash of the
-- last line that was pruned, which the first line that is left was sealed after. Each pruning adds a line of its own to
-- the audit, so that a start that nobody pruned to does not pass for one.
--
-- The function runs as the owner of the tables and is the only way: a server whose role owns nothing prunes by it, and
-- neither that role nor an error in the server can remove a younger line. The age is by sealed_at, the clock of
-- Postgres, since whoever adds a line chooses its done_at. A release before this one prunes nothing; after a pruning it
-- calls the first line that is left "missing".

CREATE TABLE audit_start (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Of the last line that was pruned.
    position bigint NOT NULL CHECK (position > 0),
    audit_id bigint NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    pruned_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION keep_audit_line() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM audit_seals AS seal, audit_start AS start WHERE seal.audit_id = OLD.audit_id AND seal.position <= start.position
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit is append-only';
END
$$;
CREATE FUNCTION keep_audit_seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM audit_start AS start WHERE OLD.position <= start.position) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit is append-only';
END
$$;
DROP TRIGGER audit_is_kept ON audit;
CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit_line();
DROP TRIGGER seals_are_kept ON audit_seals;
CREATE TRIGGER seals_are_kept BEFORE UPDATE OR DELETE ON audit_seals FOR EACH ROW EXECUTE FUNCTION keep_audit_seal();

-- Whoever adds a seal chooses neither its moment nor a position in what is pruned: else a young line could be given the
-- seal of an old one. (A restore adds rows before it adds triggers.)
CREATE FUNCTION date_audit_seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM audit_start AS start WHERE NEW.position <= start.position) THEN
        RAISE EXCEPTION 'the audit begins after position %', NEW.position;
    END IF;
    NEW.sealed_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER seals_are_dated BEFORE INSERT ON audit_seals FOR EACH ROW EXECUTE FUNCTION date_audit_seal();

-- Prunes the lines up to a position, as far as they were sealed a year ago; returns how many. The newest line stays,
-- since the next one is sealed after it. at: the moment by the clock of the cluster. Two prunings come one after the
-- other, and the start never goes back. After a restore everybody may execute it, so it asks who does.
CREATE FUNCTION prune_audit(up_to bigint, at timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    last audit_seals;
    gone bigint;
    begins_after bigint;
BEGIN
    IF NOT pg_catalog.has_table_privilege(session_user, 'audit', 'INSERT') THEN
        RAISE EXCEPTION 'only a role that adds to the audit may prune it';
    END IF;
    LOCK TABLE audit_start IN EXCLUSIVE MODE;
    SELECT COALESCE((SELECT start.position FROM audit_start AS start), 0) INTO begins_after;
    SELECT * INTO last FROM audit_seals WHERE position > begins_after
        AND position < (SELECT max(position) FROM audit_seals) AND position <= LEAST(up_to, (
        SELECT min(young.position) - 1 FROM audit_seals AS young
        WHERE young.position <= up_to AND young.sealed_at > now() - interval '365 days'
    )) ORDER BY position DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    INSERT INTO audit_start (position, audit_id, hash) VALUES (last.position, last.audit_id, last.hash)
    ON CONFLICT (only_row) DO UPDATE SET
        position = excluded.position, audit_id = excluded.audit_id, hash = excluded.hash, pruned_at = excluded.pruned_at;
    DELETE FROM audit WHERE audit_id IN (
        SELECT audit_id FROM audit_seals WHERE position > begins_after AND position <= last.position
    );
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM audit_seals WHERE position > begins_after AND position <= last.position;
    INSERT INTO audit (done_at, actor, action, subjects, after, result) VALUES (
        at, 'scheduler', 'prune_audit', ARRAY[pg_catalog.concat('audit:', last.audit_id)],
        pg_catalog.jsonb_build_object(
            'lines', gone, 'position', last.position,
            'last', pg_catalog.concat(last.audit_id, ':', pg_catalog.encode(last.hash, 'hex'))
        ), 'done'
    );
    RETURN gone;
END
$$;
REVOKE ALL ON FUNCTION prune_audit FROM PUBLIC;
-- A caller's temporary tables must not stand for these.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION prune_audit SET search_path = %I, pg_temp', current_schema());
END
$$;

-- Names of deleted nodes go with the last row that can name them. Those of before count from now on.
ALTER TABLE former_nodes ADD COLUMN deleted_at timestamptz NOT NULL DEFAULT now();
