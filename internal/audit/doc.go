// Package audit keeps the append-only record of security-relevant actions: who did
// what, when, from where, and with which outcome. A record never holds code, output,
// contents of files or secrets.
//
// A [Log] is a directory of JSON lines. Each line has a number and the hash of the
// line before it, also across files, so [Verify] finds every line that was changed,
// removed or inserted. The file "head" has the number and the hash of the last line:
// it shows that lines are missing at the end. All processes of a state directory
// append to one Log, one at a time under a file lock.
//
// A [Recorder] writes the records of actions to a Log, and passes them on to syslog.
// [Open] makes a Log, and its owner must Close it. Package app makes both; the edges
// and package audited use the Recorder. All types are safe for concurrent use.
package audit
