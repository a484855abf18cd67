-- The volumes of a sandbox besides its workspace, as JSON: see sandbox.Volume.
ALTER TABLE sandboxes ADD COLUMN volumes TEXT NOT NULL DEFAULT '[]';
