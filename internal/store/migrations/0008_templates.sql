-- Templates of principals. A build makes an image, and tags are names of builds.
CREATE TABLE templates (
    id         TEXT    PRIMARY KEY,
    principal  TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL DEFAULT 0,
    uses       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (principal, name)
) STRICT, WITHOUT ROWID;

-- Builds. The owner is the process that works on a build; image is the name of
-- the image that it makes, '' when that was removed. setup is how sandboxes of
-- it start, in JSON.
CREATE TABLE template_builds (
    id          TEXT    PRIMARY KEY,
    template    TEXT    NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    status      TEXT    NOT NULL,
    owner       TEXT    NOT NULL DEFAULT '',
    sandbox     TEXT    NOT NULL DEFAULT '',
    image       TEXT    NOT NULL DEFAULT '',
    tags        TEXT    NOT NULL,
    setup       TEXT    NOT NULL,
    reason      TEXT    NOT NULL DEFAULT '',
    reason_step TEXT    NOT NULL DEFAULT '',
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX template_builds_template ON template_builds (template, created_at);
CREATE INDEX template_builds_status ON template_builds (status);

CREATE TABLE template_tags (
    template   TEXT    NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    tag        TEXT    NOT NULL,
    build      TEXT    NOT NULL REFERENCES template_builds (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (template, tag)
) STRICT, WITHOUT ROWID;
