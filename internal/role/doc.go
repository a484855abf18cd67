// Package role starts a process of this program in its role. The supervisor, the
// sentry and the network of a sandbox are helper processes: the same executable with
// another first argument.
//
// The table of roles is in cmd/glovebox. Only cmd/glovebox and tests that start
// helper processes from their own binary import this package.
package role
