-- The saved state of a sandbox: when it was saved on the disk (0: it is not there), its
-- size, and the hash of the executable that can wake it. save_error says why the last
-- attempt to save or wake the sandbox failed, at save_failed_at.
ALTER TABLE sandboxes ADD COLUMN saved_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN saved_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN saved_build TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN save_error TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN save_failed_at INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sandboxes_saved ON sandboxes (saved_build) WHERE ended_at = 0 AND saved_at != 0;
