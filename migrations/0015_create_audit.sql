-- Who did what to what, from where and why, and what was refused. Append-only: the trigger holds for the server's own role too.
-- Nothing is pruned; a later release may chain rows by a hash over the row before, for which the order is kept here.

CREATE TABLE audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    done_at timestamptz NOT NULL,
    -- "user:ada", as the event log names them.
    actor text NOT NULL,
    token_id uuid,
    address text,
    -- The id of the route's operation.
    action text NOT NULL,
    -- "job:<id>", "project:nlp": a submission has one for each job.
    subjects text[] NOT NULL,
    reason text,
    -- What has changed of the subject, by path.
    before jsonb,
    after jsonb,
    request_id text,
    result text NOT NULL CHECK (result IN ('done', 'refused')),
    -- Why it was refused.
    code text
);
CREATE INDEX audit_by_actor ON audit (actor, audit_id);
CREATE INDEX audit_by_subject ON audit USING gin (subjects);

CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END
$$;
CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit();
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();
