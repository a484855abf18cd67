package verdict

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Fate is why the engine ended a run.
type Fate int

// The fates of a run.
const (
	FateNone      Fate = iota
	FateTimeout        // its timeout passed, and it was killed
	FateCancelled      // its owner asked for its end, and it was killed
	FateBroken         // its output could not be kept, and it was killed
	FateDiskFull       // its workspace is over its quota, and it was killed
	FateUnready        // a service that was not ready in time, and was killed
)

// An Ending is all information about the end of a run.
type Ending struct {
	// End is the program's, as the guest reports it. It is zero if the guest
	// reported none: the sandbox was lost first. Exception is the exception that
	// ended code in a context, or nil. Why is the reason for which the sandbox
	// stops, or nil.
	End       guestapi.End
	Exception *sandbox.RunError
	Why       *Reason
	// MissesState means that the sandbox was made for this run, and that the
	// program missed a variable or a file.
	MissesState bool

	Fate    Fate
	Broken  error // with FateBroken, FateDiskFull and FateUnready
	Timeout time.Duration
	Lasted  time.Duration // by the engine's clock
	Limits  sandbox.Limits

	// Before and After are the driver's counts for the whole sandbox; they are
	// valid if Counted is set. Alone means that no other run was in progress in
	// the sandbox.
	Before, After driver.Incidents
	Counted       bool
	Alone         bool
}

// Next steps that several verdicts share.
const (
	NextMemory    = "make a sandbox with more memory, or process the data in smaller pieces"
	nextTime      = "ask for a longer timeout, or split the work"
	nextDisk      = "make a sandbox with more disk, or remove files that are not needed"
	NextWorkspace = "remove files of the workspace that are not needed, or use another workspace"
	nextForks     = "make a sandbox with a higher limit, or start fewer processes at a time"
	nextNotFound  = "check the spelling; list the languages to see what is installed"
)

// Exit statuses of shells: the command could not be executed, or was not found.
// For a command that a signal killed, the status is ExitSignal plus its number.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignal        = 128
)

const sigKill = 9

// AsByShell returns the end of a program as a shell that ran it would report it.
// It changes only crashes: the signals that end a run also end the shell.
func AsByShell(end *guestapi.End) *guestapi.End {
	if end.Status != guestapi.EndDied || !slices.Contains(crashes, end.Detail.Signal) {
		return end
	}
	told, code := *end, ExitSignal+end.Detail.Signal
	told.Status, told.ExitCode = guestapi.EndExit, &code
	return &told
}

// crashes are the signals that a program causes itself.
var crashes = []int{
	4,  // SIGILL
	5,  // SIGTRAP
	6,  // SIGABRT
	7,  // SIGBUS
	8,  // SIGFPE
	11, // SIGSEGV
	13, // SIGPIPE
	31, // SIGSYS
}

// Unkept is the verdict on a run whose output or result could not be kept.
func Unkept(what string, err error) sandbox.Verdict {
	next := "ask the operator to look at the server's disk"
	if errors.Is(err, guestapi.ErrLongEvent) {
		next = "show smaller results, or write large data to files"
	}
	return sandbox.Verdict{
		Code:     sandbox.Killed,
		Cause:    fmt.Sprintf("its %s could not be kept, and it was ended: %v", what, err),
		NextStep: next,
	}
}

// Unsaved is the verdict on a run whose files stayed in the sandbox.
func Unsaved(v sandbox.Verdict, err error) sandbox.Verdict {
	const note = "its files could not be copied to the workspace: "
	if v.Code != sandbox.OK {
		v.Cause += "; " + note + err.Error()
		return v
	}
	return sandbox.Verdict{
		Code:     sandbox.Failed,
		Cause:    "it ended well, but " + note + err.Error(),
		NextStep: "read the files in the sandbox while that lives, or run something there to copy them again",
	}
}

// failure judges a program that did not succeed.
func (e Ending) failure() sandbox.Verdict {
	d := e.End.Detail
	switch {
	case e.outOfMemory():
		return sandbox.Verdict{
			Code:     sandbox.OutOfMemory,
			Cause:    fmt.Sprintf("it used more than the sandbox's %s of memory", sandbox.FormatBytes(e.Limits.MemoryBytes)),
			NextStep: NextMemory,
		}
	case d.ProcessLimit || e.Counted && e.Alone && e.After.ProcessRefusals > e.Before.ProcessRefusals:
		return sandbox.Verdict{
			Code:     sandbox.TooManyProcesses,
			Cause:    fmt.Sprintf("it reached the sandbox's limit of %d processes and threads", e.Limits.Processes),
			NextStep: nextForks,
		}
	case d.DiskFull:
		return sandbox.Verdict{
			Code:     sandbox.DiskFull,
			Cause:    fmt.Sprintf("it filled the sandbox's disk of %s", sandbox.FormatBytes(e.Limits.DiskBytes)),
			NextStep: nextDisk,
		}
	case e.End.Status == guestapi.EndDied && e.End.Cause != "":
		return sandbox.Verdict{Code: sandbox.Killed, Cause: e.End.Cause}
	case e.End.Status == guestapi.EndDied:
		return sandbox.Verdict{Code: sandbox.Killed, Cause: "it was killed by " + signalText(d.Signal, e.End.Text)}
	case e.End.Status == guestapi.EndExit:
		return exited(e.End.ExitCode)
	case e.Exception != nil:
		return raised(*e.Exception)
	case e.End.Status == guestapi.EndInterrupted:
		return sandbox.Verdict{Code: sandbox.Failed, Cause: "it was interrupted"}
	}
	return sandbox.Verdict{Code: sandbox.Failed, Cause: "an exception ended it"}
}

// exited judges a program that exited with a status other than 0. The status of
// code in a context may be unknown.
func exited(status *int) sandbox.Verdict {
	code := -1
	if status != nil {
		code = *status
	}
	v := sandbox.Verdict{Code: sandbox.Failed, Cause: fmt.Sprintf("it exited with status %d", code)}
	switch {
	case code == ExitNotFound:
		v.Cause += ", which means that a command was not found"
		v.NextStep = nextNotFound
	case code == ExitNotExecutable:
		v.Cause += ", which means that a command could not be executed"
		v.NextStep = "check that the file is a program and has the mode for it"
	case code > ExitSignal && code <= ExitSignal+64:
		v.Cause += ", which means that a command was killed by " + signalText(code-ExitSignal, "")
	}
	return v
}

// outOfMemory reports whether a program failed for lack of memory. A kill that
// the driver counted is attributed to this program if the program was killed,
// or if no other run was in progress.
func (e Ending) outOfMemory() bool {
	if e.End.Detail.MemoryKill {
		return true
	}
	if !e.Counted || e.After.MemoryKills <= e.Before.MemoryKills {
		return false
	}
	code := e.End.ExitCode
	looksKilled := code != nil && *code == ExitSignal+sigKill
	if e.End.Status == guestapi.EndDied {
		looksKilled = e.End.Detail.Signal == sigKill
	}
	return looksKilled || e.Alone
}

// Usage returns the guest's figures for the run, bounded by the possible
// values. Invented figures must not spoil sums over many runs.
func (e Ending) Usage() sandbox.Usage {
	d := e.End.Detail
	// Round up to whole CPUs, and allow a second for the difference between
	// clocks.
	cpus := int64(math.Ceil(e.Limits.CPUs))
	most := cpus * (max(e.Lasted, 0).Milliseconds() + 1000)
	return sandbox.Usage{
		CPUMillis:       min(max(d.CPUMillis, 0), most),
		PeakMemoryBytes: min(max(d.PeakMemoryBytes, 0), e.Limits.MemoryBytes),
	}
}

// signalText names a signal for people. The numbers are Linux's, whatever
// system the engine runs on.
func signalText(number int, status string) string {
	names := map[int]string{
		1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL, an illegal instruction", 5: "SIGTRAP",
		6: "SIGABRT, which programs raise when they find themselves broken", 7: "SIGBUS, a bad memory access",
		8: "SIGFPE, an arithmetic error", 9: "SIGKILL", 10: "SIGUSR1",
		11: "SIGSEGV, a bad memory access", 12: "SIGUSR2", 13: "SIGPIPE, a write that nobody reads", 14: "SIGALRM",
		15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS, a forbidden system call",
	}
	if name := names[number]; name != "" {
		return name
	}
	if number > 0 {
		return fmt.Sprintf("signal %d", number)
	}
	if status != "" {
		return "a signal (" + status + ")"
	}
	return "a signal"
}

// overQuota is the verdict of a run whose workspace is over its quota.
func overQuota(why error) sandbox.Verdict {
	return sandbox.Verdict{
		Code:     sandbox.DiskFull,
		Cause:    fmt.Sprintf("it was ended, because it wrote too much: %v", why),
		NextStep: NextWorkspace,
	}
}
