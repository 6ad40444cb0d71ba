-- Where lines of a moment begin and end in the chain of the audit: lines are sealed in the order of their commits, and the
-- times in them are not in order. About a second per million lines, for which writers of the audit wait.
CREATE INDEX audit_by_time ON audit (done_at);
