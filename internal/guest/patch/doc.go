// Package patch writes the differences between files in the form of git diff, for
// the guest. It has no state and reads no files.
//
// Only package guest/changes imports it. Lines are compared in time and memory that
// grow with their number: the result is correct for any contents, and shortest only
// for most.
package patch
