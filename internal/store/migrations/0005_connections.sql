-- What sandboxes reached, and what they tried to: one row each, numbered in the
-- order in which a sandbox's ended. Blocked is why, empty for what was allowed.
CREATE TABLE connections (
    sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    protocol   TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    port       INTEGER NOT NULL,
    blocked    TEXT    NOT NULL,
    sent       INTEGER NOT NULL,
    received   INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, number)
) STRICT, WITHOUT ROWID;

-- JSON: what a run's sandbox reached while the run went on.
ALTER TABLE runs ADD COLUMN network TEXT NOT NULL DEFAULT '';
