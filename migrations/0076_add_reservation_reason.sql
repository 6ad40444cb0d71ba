-- Why nodes are reserved, in words of whoever reserved them. A column, although the body of the row has it too: a release
-- before this one writes a body without it when a reservation begins, and leaves the column as it is.

ALTER TABLE reservations ADD COLUMN reason text CHECK (char_length(reason) <= 500);
