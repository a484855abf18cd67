// Package promql has no program. Its tests evaluate the alert rules and the panels of
// deploy/monitoring by Prometheus's own engine, on what the program's registry exposes.
package promql
