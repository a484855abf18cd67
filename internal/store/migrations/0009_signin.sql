-- Programs that registered themselves to ask people for grants. redirect_uris is a
-- JSON array.
CREATE TABLE oauth_clients (
    id            TEXT    PRIMARY KEY,
    name          TEXT    NOT NULL,
    redirect_uris TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    used_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth_clients_used ON oauth_clients (used_at);

-- The permission that a person, who signed in with a token, gave a client.
CREATE TABLE oauth_grants (
    id          TEXT    PRIMARY KEY,
    token_id    TEXT    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    client_id   TEXT    NOT NULL,
    client_name TEXT    NOT NULL,
    scopes      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    used_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth_grants_token ON oauth_grants (token_id);
CREATE INDEX oauth_grants_client ON oauth_grants (client_id);
CREATE INDEX oauth_grants_expires ON oauth_grants (expires_at);

-- Access tokens and refresh tokens of grants, by the hash of their text.
CREATE TABLE oauth_tokens (
    hash        BLOB    PRIMARY KEY,
    grant_id    TEXT    NOT NULL REFERENCES oauth_grants (id) ON DELETE CASCADE,
    refresh     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    replaced_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth_tokens_grant ON oauth_tokens (grant_id);
