-- The service that a run is, as JSON, or '' for other runs. Runs of before are none.
ALTER TABLE runs ADD COLUMN service TEXT NOT NULL DEFAULT '';
