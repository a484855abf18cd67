package sentry

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
)

// gVisor counts processes by user (RLIMIT_NPROC), and root of a sandbox can be
// any number of users. A processLimit counts all programs of the sandbox. The
// sentry checks it when a task forks or starts a thread: see startObserver.Clone.

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
	case all > int(l)+allowance.SpareProcesses:
		return linuxerr.EAGAIN
	}
	guest := root.ThreadGroupWithID(kernel.ThreadID(1))
	if guest == nil {
		return linuxerr.EAGAIN // the sandbox ends
	}
	program := executable(guest.Leader())
	if program == nil {
		return linuxerr.EAGAIN
	}
	defer program.DecRef(t)
	if isOwn(t, program) {
		return nil
	}
	programs := 0
	for _, other := range root.Tasks() {
		if other.ThreadGroup() != guest && !isConnector(t, other, program) {
			programs++
		}
	}
	if programs > int(l) {
		return linuxerr.EAGAIN
	}
	return nil
}

// isOwn reports whether the calling task is the guest's or a connector's, where guest
// is the guest's program. The guest alone has CAP_SYS_RESOURCE.
func isOwn(t *kernel.Task, guest *vfs.FileDescription) bool {
	return isConnector(t, t, guest) || t.Credentials().HasRootCapability(linux.CAP_SYS_RESOURCE) && runs(t, t, guest)
}

// isConnector reports whether a task is a connector's. These alone are started from
// outside, by the path of the guest. What sandbox-root may have put there is not the
// guest's program, and counts with all that it starts. So does a connector that has
// ended, which has no program any more.
func isConnector(ctx context.Context, t *kernel.Task, guest *vfs.FileDescription) bool {
	return t.Origin == kernel.OriginExec && runs(ctx, t, guest)
}

// runs reports whether a task executes the very file that program is, by whatever
// name. While program is open, the file has no other entry in the sentry's memory.
func runs(ctx context.Context, t *kernel.Task, program *vfs.FileDescription) bool {
	own := executable(t)
	if own == nil {
		return false
	}
	defer own.DecRef(ctx)
	return own.Dentry() == program.Dentry()
}

// executable returns what a task executes, which the caller releases, or nil if the
// task has ended.
func executable(t *kernel.Task) *vfs.FileDescription {
	var memory *mm.MemoryManager
	t.WithMuLocked(func(t *kernel.Task) { memory = t.MemoryManager() })
	if memory == nil {
		return nil
	}
	return memory.Executable() // not under the task's lock, which comes after its own
}
