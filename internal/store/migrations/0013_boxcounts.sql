-- Whether the CPU time of a sandbox is box_cpu_ms, the host kernel's count, and not
-- run_cpu_ms: see usage.Counters. That of sandboxes of before is the latter.
ALTER TABLE meters ADD COLUMN box_counts INTEGER NOT NULL DEFAULT 0;
