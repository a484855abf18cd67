-- When a sandbox's creator wants it to end (0 for "has not said"), what then
-- becomes of it, whether it goes on while nothing uses it, and notes, as JSON.
ALTER TABLE sandboxes ADD COLUMN ends_at  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN at_end   TEXT    NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN restless INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN labels   TEXT    NOT NULL DEFAULT 'null';
