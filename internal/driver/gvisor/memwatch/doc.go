// Package memwatch enforces the memory limit of a box where there is no control
// group.
//
// The lifecycle of a [Watch] is [Open], [Start], [Watch.Stop]. The supervisor starts
// watches. The driver only opens memory files that its supervisor may not open. Both
// import this package.
package memwatch
