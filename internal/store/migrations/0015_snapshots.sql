-- Snapshots of sandboxes: the driver keeps the state, under the same identifier. owner is
-- the process that makes it. parent is the snapshot whose state the sandbox had last
-- before, '' for none. setup is what a sandbox needs that is made from it, in JSON.
CREATE TABLE snapshots (
    id         TEXT    PRIMARY KEY,
    principal  TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    driver     TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    sandbox    TEXT    NOT NULL,
    setup      TEXT    NOT NULL,
    bytes      INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshots_principal ON snapshots (principal, created_at);

-- The snapshot whose state a sandbox had last.
CREATE TABLE snapshot_bases (
    sandbox  TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    snapshot TEXT NOT NULL
) STRICT, WITHOUT ROWID;
