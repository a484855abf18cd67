// Package state keeps the saved state of a box in a directory: the files with its
// memory, and a manifest that says what they are and what they need.
//
// A state is written whole or not at all. A [Writer] makes it beside its place, and
// [Writer.Commit] renames it there when all of it is on the disk. [Open] refuses a
// state whose files are not as they were written, or that is of another box.
//
// A state has one owner, the supervisor of its box, and lives in the directory of
// that box. The package keeps no state in memory.
package state
