// Package bundle says to gVisor what a box is: its settings, its OCI specification
// and its network interface.
//
// Only the supervisor imports it. It keeps no state.
package bundle
