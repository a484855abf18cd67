-- The beginning of a run's program, with its length and language, for a list of
-- runs. Runs of before have none.
ALTER TABLE runs ADD COLUMN language TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN program TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN program_bytes INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_started ON runs (started_at);
