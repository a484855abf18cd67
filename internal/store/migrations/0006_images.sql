-- Whose images are, by the driver that keeps them and the image's own digest
-- (a name can stand for another image tomorrow). The principal '' is the
-- operator, and '?' is "not known".
CREATE TABLE images (
    driver      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (driver, id, principal)
) STRICT, WITHOUT ROWID;

-- Pulls that principals asked for and whose image is not in the table above yet.
-- An image with such a name is that principal's, also if the server was killed
-- before it could record so.
CREATE TABLE image_pulls (
    id        INTEGER PRIMARY KEY,
    driver    TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    begun_at  INTEGER NOT NULL
) STRICT;

-- Engines in whose images nothing tells those that the operator put there from
-- those that principals had pulled before this table was made. All of them are
-- recorded as not known at the first look, and the engine's row is removed.
CREATE TABLE image_surveys (
    driver TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

INSERT INTO image_surveys (driver)
SELECT column1 FROM (VALUES ('docker'), ('podman'))
WHERE EXISTS (SELECT 1 FROM tokens)
   OR EXISTS (SELECT 1 FROM sandboxes WHERE principal != 'local')
   OR EXISTS (SELECT 1 FROM workspaces WHERE principal != 'local');
