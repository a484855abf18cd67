-- Times are microseconds since 1970, 0 for "not yet". Limits and receipts are
-- JSON. Nothing here is a secret: environments never reach this file, tokens
-- only as hashes.

CREATE TABLE owners (
    id         TEXT    PRIMARY KEY,
    pid        INTEGER NOT NULL,
    detached   INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;

-- owner names the process that looks after a sandbox. It is no foreign key:
-- a sandbox outlives its owner's row, and that is how the sweep finds it.
CREATE TABLE sandboxes (
    id         TEXT    PRIMARY KEY,
    principal  TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    detached   INTEGER NOT NULL,
    driver     TEXT    NOT NULL,
    ref        TEXT    NOT NULL DEFAULT '',
    state      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    image      TEXT    NOT NULL,
    network    TEXT    NOT NULL,
    has_env    INTEGER NOT NULL,
    limits     TEXT    NOT NULL,
    receipt    TEXT    NOT NULL DEFAULT 'null',
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL DEFAULT 0,
    cause      TEXT    NOT NULL DEFAULT '',
    stop_cause TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX sandboxes_by_principal ON sandboxes (principal, created_at);
CREATE INDEX sandboxes_live ON sandboxes (owner) WHERE ended_at = 0;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at != 0;

CREATE TABLE runs (
    id             TEXT    PRIMARY KEY,
    sandbox_id     TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    principal      TEXT    NOT NULL,
    started_at     INTEGER NOT NULL,
    timeout        INTEGER NOT NULL,
    terminal       INTEGER NOT NULL,
    keeps_stdin    INTEGER NOT NULL,
    stop_requested INTEGER NOT NULL DEFAULT 0,
    ended_at       INTEGER NOT NULL DEFAULT 0,
    verdict        TEXT    NOT NULL DEFAULT '',
    cause          TEXT    NOT NULL DEFAULT '',
    next_step      TEXT    NOT NULL DEFAULT '',
    exit_code      INTEGER,
    cpu_ms         INTEGER NOT NULL DEFAULT 0,
    peak_memory    INTEGER NOT NULL DEFAULT 0,
    stdout_bytes   INTEGER NOT NULL DEFAULT 0,
    stderr_bytes   INTEGER NOT NULL DEFAULT 0,
    kept_bytes     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_sandbox ON runs (sandbox_id);
CREATE INDEX runs_ended ON runs (ended_at);

CREATE TABLE tokens (
    id         TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE,
    scopes     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL DEFAULT 0,
    revoked_at INTEGER NOT NULL DEFAULT 0
) STRICT;
