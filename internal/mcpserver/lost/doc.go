// Package lost keeps runs for callers that lost them: [Grace] lets the run of a call
// that its client gave up go on for a while, and [Keys] finds the run of a call that
// its client repeats.
//
// Only package mcpserver imports it. Both are bounded, and end with the process; Keys can
// ask records that outlive it.
package lost
