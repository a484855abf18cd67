-- What sandboxes used, up to counted_at, and the counters at that time: see
-- usage.Counters. runs and run_ms are those of the sandbox's runs that ended. A
-- sandbox of before this table is counted from its last use on.
CREATE TABLE meters (
    sandbox_id TEXT    PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    principal  TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    memory_kib INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    counted_at INTEGER NOT NULL,
    box_cpu_ms INTEGER NOT NULL DEFAULT 0,
    run_cpu_ms INTEGER NOT NULL DEFAULT 0,
    sent       INTEGER NOT NULL DEFAULT 0,
    received   INTEGER NOT NULL DEFAULT 0,
    runs       INTEGER NOT NULL DEFAULT 0,
    run_ms     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO meters (sandbox_id, principal, workspace, label, memory_kib, started_at, counted_at)
SELECT id, principal, workspace, '', coalesce(json_extract(limits, '$.memory_bytes'), 0) / 1024, used_at, used_at
FROM sandboxes WHERE ended_at = 0 AND state != 'starting';

-- The sums of each hour and day. hour and day are their beginnings in UTC.
CREATE TABLE usage_hours (
    principal      TEXT    NOT NULL,
    hour           INTEGER NOT NULL,
    workspace      TEXT    NOT NULL,
    label          TEXT    NOT NULL,
    sandboxes      INTEGER NOT NULL,
    sandbox_ms     INTEGER NOT NULL,
    memory_kib_s   INTEGER NOT NULL,
    cpu_ms         INTEGER NOT NULL,
    runs           INTEGER NOT NULL,
    run_ms         INTEGER NOT NULL,
    sent_bytes     INTEGER NOT NULL,
    received_bytes INTEGER NOT NULL,
    storage_kib_s  INTEGER NOT NULL,
    PRIMARY KEY (principal, hour, workspace, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_hours_hour ON usage_hours (hour);

CREATE TABLE usage_days (
    principal      TEXT    NOT NULL,
    day            INTEGER NOT NULL,
    sandboxes      INTEGER NOT NULL,
    sandbox_ms     INTEGER NOT NULL,
    memory_kib_s   INTEGER NOT NULL,
    cpu_ms         INTEGER NOT NULL,
    runs           INTEGER NOT NULL,
    run_ms         INTEGER NOT NULL,
    sent_bytes     INTEGER NOT NULL,
    received_bytes INTEGER NOT NULL,
    storage_kib_s  INTEGER NOT NULL,
    PRIMARY KEY (principal, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_day ON usage_days (day);

-- Until when the size of a workspace is counted. Those of before are counted from
-- their last use on.
ALTER TABLE workspaces ADD COLUMN counted_at INTEGER NOT NULL DEFAULT 0;
UPDATE workspaces SET counted_at = used_at;
