-- The audit as a chain: each row is sealed with a hash over itself and the hash of the row that was sealed before it (docs/decisions/0020). The hashes have a table
-- of their own, since rows of the audit never change. The leader seals whatever waits, in batches: nobody who writes to the audit waits for
-- anybody else who does. What makes the chain linear is the primary key: of two who seal at once one fails, and looks again.
--
-- Rows that there are already are sealed from now on, as they are now. A release before this one writes rows as it did; the trigger has them sealed all the same.

CREATE TABLE audit_seals (
    -- The order of the chain, without gaps. Rows that were committed late stand later than their ids say.
    position bigint PRIMARY KEY CHECK (position > 0),
    -- No foreign key: a row that is gone has to be found by whoever verifies, not hidden by what a superuser can drop.
    audit_id bigint NOT NULL UNIQUE,
    previous_hash bytea NOT NULL CHECK (octet_length(previous_hash) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    sealed_at timestamptz NOT NULL DEFAULT now()
);

-- Rows that wait for their seal. Each is taken out in the transaction that seals it.
CREATE TABLE audit_unsealed (
    audit_id bigint PRIMARY KEY,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION await_seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_unsealed (audit_id) SELECT audit_id FROM added;
    RETURN NULL;
END
$$;
-- Before the rows that there are: from here to the end of the migration nobody adds one.
CREATE TRIGGER audit_awaits_its_seal AFTER INSERT ON audit
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION await_seal();
INSERT INTO audit_unsealed (audit_id) SELECT audit_id FROM audit;

CREATE TRIGGER seals_are_kept BEFORE UPDATE OR DELETE ON audit_seals FOR EACH ROW EXECUTE FUNCTION keep_audit();
CREATE TRIGGER seals_are_never_emptied BEFORE TRUNCATE ON audit_seals FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();
