-- Boxes that a process has made ahead, for nobody yet. Those of an owner that is
-- dead are strays.
CREATE TABLE warm (
    id    TEXT PRIMARY KEY,
    owner TEXT NOT NULL
) STRICT;
