package process

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// An inheritance is what programs inherit from the guest: a limit, capabilities
// and the OOM score.
type inheritance struct {
	maxProcesses int  // as in Config
	containers   bool // as in Config
	pid          int  // of the guest

	// oomScore is the OOM score of children, ownScore the guest's. Both are
	// empty if the scores are the same. They are written to oomFile.
	oomScore, ownScore string
	oomFile            int
}

// newInheritance limits and protects this process.
func newInheritance(cfg *Config, pid int) (*inheritance, error) {
	in := &inheritance{maxProcesses: cfg.MaxProcesses, containers: cfg.Containers, pid: pid}
	if pid != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, os.NewSyscallError("prctl", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		// No program can trace the guest then. Programs of sandbox-root cannot
		// either, as they lack CAP_SYS_PTRACE: see beforeFork.
		return nil, os.NewSyscallError("prctl", err)
	}
	if err := in.limit(); err != nil {
		return nil, err
	}
	in.protect()
	return in, nil
}

// limit sets the limit on processes, which children inherit. The guest's own
// capabilities exempt it from the limit.
func (in *inheritance) limit() error {
	n := uint64(in.maxProcesses)
	if n == 0 {
		return nil
	}
	lim := unix.Rlimit{Cur: n, Max: n}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lim); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return nil
}

// protect shields the guest from debuggers and from the OOM killer. It does as
// much as the OS kernel permits; the rest is left to the sandbox's isolation.
func (in *inheritance) protect() {
	unix.Umask(0o022)
	if os.Geteuid() == 0 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	var buf [16]byte
	n := procfs.ReadSmall(oomScoreFile, buf[:])
	if n == 0 {
		return
	}
	was := strings.TrimSpace(string(buf[:n]))
	// It stays open because each start of a program writes it twice.
	var err error
	if in.oomFile, err = unix.Open(oomScoreFile, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return
	}
	switch {
	case setOOMScore(in.oomFile, ownOOMScore) == nil:
		in.ownScore, in.oomScore = ownOOMScore, was
	case os.Geteuid() == 0:
		// The guest may not lower its own score, but may raise its children's.
		in.ownScore, in.oomScore = was, childOOMScore
	default:
		unix.Close(in.oomFile)
	}
}

// ownOOMScore makes the guest the last victim of the OOM killer, but not exempt.
// A child that a fork bomb starts between two writes would inherit an exemption.
const (
	ownOOMScore   = "-999"
	childOOMScore = "500"
	oomScoreFile  = "/proc/self/oom_score_adj"
)

// setOOMScore sets the OOM score of this process; file is its open oomScoreFile.
func setOOMScore(file int, score string) error {
	_, err := unix.Pwrite(file, []byte(score), 0)
	return err
}

// beforeFork sets the capabilities and the OOM score that a child inherits.
func (in *inheritance) beforeFork() {
	if in.maxProcesses > 0 {
		// With these capabilities root's programs would be exempt from the
		// limit. Without CAP_SETPCAP the guest cannot drop them.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0)
		if !in.containers { // a sandbox for containers has its limit elsewhere: see driver.Spec
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0)
		}
	}
	if in.pid == 1 {
		// With this capability root's programs could trace the guest.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0)
	}
	if in.oomScore != "" {
		_ = setOOMScore(in.oomFile, in.oomScore) // raising it is always allowed
	}
}

// afterFork restores the guest's own OOM score.
func (in *inheritance) afterFork() {
	if in.oomScore != "" {
		_ = setOOMScore(in.oomFile, in.ownScore) // the guest had this score before
	}
}
