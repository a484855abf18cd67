-- Groups of principals. group_name is that of a group; a group without members has no
-- row.
CREATE TABLE group_members (
    group_name TEXT NOT NULL,
    principal  TEXT NOT NULL,
    PRIMARY KEY (group_name, principal)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_members_principal ON group_members (principal);

-- The limits of accounts. kind is principal or group. The principal '*' stands for each
-- principal that has no limit of that name itself, except the local one. A time is in
-- milliseconds.
CREATE TABLE usage_limits (
    kind    TEXT    NOT NULL,
    account TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    value   INTEGER NOT NULL,
    PRIMARY KEY (kind, account, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_live_principal ON sandboxes (principal) WHERE ended_at = 0;
