// Package message has the messages between the driver, in the server, and its
// supervisor: requests, replies, and errors. It has the record of a box too, which
// the supervisor keeps on disk and sends in a [Report].
//
// The server starts its supervisor, so both have the same version, unless an update
// replaced the program meanwhile. Each then speaks to the other: a driver does
// without the operations that are newer than the [Version] of its supervisor, and a
// supervisor expects no operation of its driver. Records outlive the program: an
// older record lacks newer fields.
//
// The driver, its supervisor and the packages that both use import this package. It
// keeps no state.
package message
