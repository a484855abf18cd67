// Package allowance has the resources that the processes around a box need beyond
// those of the box's programs. It turns a box's limits into the limits of its
// control group.
//
// The driver, its supervisor and the sentry import this package, so that they use
// the same numbers. It keeps no state.
package allowance
