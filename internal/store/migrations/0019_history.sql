-- The history of runs is searched by these.
CREATE INDEX runs_by_principal ON runs (principal, started_at);
CREATE INDEX runs_by_verdict ON runs (verdict, started_at);
CREATE INDEX meters_label ON meters (label) WHERE label != '';
