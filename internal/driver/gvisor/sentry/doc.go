// Package sentry starts the process of a sentry, gVisor's kernel, and has all code
// that runs in it.
//
// The supervisor calls [Start] for each box and compiles a [Filter] for all of them.
// cmd/glovebox calls [Main] in the new process. Main changes the process for good:
// it makes the small root, gives up capabilities, answers the requests for mounts,
// and runs gVisor until the box ends.
//
// Code that depends on gVisor's internals is here: linked names, a field found by
// name, assembly, and the filter of system calls. CONTRIBUTING.md lists what to
// check when gVisor changes.
//
// Only the supervisor and cmd/glovebox import this package.
package sentry
