-- Whether an issuer's claims put the principal into the group. The other members were
-- put there by an administrator, and stay.
ALTER TABLE group_members ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0;
