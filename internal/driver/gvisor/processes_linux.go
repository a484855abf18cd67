package gvisor

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// gVisor counts processes by user (RLIMIT_NPROC), and root of a sandbox can be
// any number of users. A processLimit counts all programs of the sandbox. The
// sentry checks it when a task forks or starts a thread: see startObserver.Clone.

// spareProcesses is the number of processes and threads above the limit that the
// guest may have: its threads, its connectors, and programs that it starts while
// others use the whole limit. It is bounded, because sandbox-root can trace the
// guest and make it fork.
const spareProcesses = 128

// A processLimit is the maximum number of processes and threads of a sandbox; 0
// means no limit.
type processLimit int

// processLimitOf returns the limit of a specification.
func processLimitOf(spec *specs.Spec) processLimit {
	for _, l := range spec.Process.Rlimits {
		if l.Type == "RLIMIT_NPROC" {
			return processLimit(l.Soft)
		}
	}
	return 0
}

// check returns EAGAIN if the sandbox has too many processes, including the one
// that t has just made. As in a control group, a zombie counts until its parent has
// waited for it.
func (l processLimit) check(t *kernel.Task) error {
	root := t.TaskSet().Root
	all := root.NumTasks()
	switch {
	case l == 0 || all <= int(l):
		return nil // nearly always
	case all > int(l)+spareProcesses:
		return linuxerr.EAGAIN
	case isOwn(t):
		return nil
	}
	guest := root.ThreadGroupWithID(kernel.ThreadID(1))
	programs := 0
	for _, other := range root.Tasks() {
		if other.ThreadGroup() != guest && other.Origin != kernel.OriginExec {
			programs++
		}
	}
	if programs > int(l) {
		return linuxerr.EAGAIN
	}
	return nil
}

// isOwn reports whether a task is the guest's or a connector's. The guest alone
// has CAP_SYS_RESOURCE, and connectors alone are started from outside.
func isOwn(t *kernel.Task) bool {
	return t.Origin == kernel.OriginExec || t.Credentials().HasRootCapability(linux.CAP_SYS_RESOURCE)
}
