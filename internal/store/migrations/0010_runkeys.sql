-- The runs that callers asked for with a key, so that a repeated request finds its
-- run. key_hash is the hash of the key, and request a fingerprint of the request.
-- A row is written with the record of its run. It stays if the record of an ended run
-- is removed: the repeated request then starts no second run.
CREATE TABLE run_keys (
    principal  TEXT    NOT NULL,
    key_hash   BLOB    NOT NULL,
    request    BLOB    NOT NULL,
    run_id     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (principal, key_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_keys_run ON run_keys (run_id);
CREATE INDEX run_keys_expires ON run_keys (expires_at);
