-- undo is the snapshot that the sandbox of a run returns to if the run fails, '' for none.
-- rollback is what came of it, as JSON: see sandbox.Rollback.
ALTER TABLE runs ADD COLUMN undo TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN rollback TEXT NOT NULL DEFAULT '';

-- internal is 1 for a snapshot that was taken for a run, and that its owner does not see.
-- reserved is how large a snapshot may become while it is being made.
ALTER TABLE snapshots ADD COLUMN internal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_undo ON runs (undo) WHERE undo != '';

-- build is the build of this program that can read a snapshot, '' if any can, or if the
-- snapshot was made before builds were recorded.
ALTER TABLE snapshots ADD COLUMN build TEXT NOT NULL DEFAULT '';
