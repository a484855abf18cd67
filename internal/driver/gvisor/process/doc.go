// Package process finds, binds, signals and ends the processes of boxes on the host.
//
// A [Child] is a process that this process started. The others are known by their
// arguments and their user: see [IsOfBox]. The driver and its supervisor import this
// package. It keeps no state.
package process
