-- context is what a run has to do with its context, as JSON; '' for a program of
-- its own.

ALTER TABLE runs ADD COLUMN context TEXT NOT NULL DEFAULT '';
