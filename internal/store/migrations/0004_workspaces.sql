-- Workspaces: what they hold is in directories of their own, named by id, which
-- only their principal knows. handle names one to others, in URLs that are
-- signed. bytes and files are what was measured last.
CREATE TABLE workspaces (
    id         TEXT    PRIMARY KEY,
    handle     TEXT    NOT NULL UNIQUE,
    principal  TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL DEFAULT 0,
    files      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (principal, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX workspaces_used ON workspaces (used_at);

-- The name, its principal's, of the workspace that a sandbox has; '' for none.
ALTER TABLE sandboxes ADD COLUMN workspace TEXT NOT NULL DEFAULT '';

CREATE INDEX sandboxes_workspace ON sandboxes (principal, workspace) WHERE ended_at = 0 AND workspace != '';

-- What a run changed in its workspace, as JSON; '' for one without.
ALTER TABLE runs ADD COLUMN changes TEXT NOT NULL DEFAULT '';

-- Signatures of URLs that may be used once, and were.
CREATE TABLE spent (
    signature  BLOB    PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
