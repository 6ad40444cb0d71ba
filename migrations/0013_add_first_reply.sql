-- A repeated request gets its first reply, whatever has become of its subject since. Rows of an earlier binary have none.
ALTER TABLE idempotency_keys ADD COLUMN reply text;
