-- The newest moment of any fact. A new leader begins its clock no earlier, so that time never steps back in what is
-- stored: not when the machine's clock was set back between two starts, nor when the clock of an emulated cluster ran
-- faster than the time of day.
ALTER TABLE cluster ADD COLUMN last_at timestamptz;
UPDATE cluster SET last_at = (SELECT happened_at FROM events ORDER BY seq DESC LIMIT 1);
