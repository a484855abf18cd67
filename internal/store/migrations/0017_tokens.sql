-- expires_at 0 is never. A rotation moves hash to previous_hash, which is valid until
-- previous_until, and counts in rotations.
ALTER TABLE tokens ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN rotated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN rotations INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN previous_hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE tokens ADD COLUMN previous_until INTEGER NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX tokens_previous ON tokens (previous_hash) WHERE previous_hash != x'';
