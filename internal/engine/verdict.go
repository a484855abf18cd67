package engine

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

// A fate is why the engine ended a run.
type fate int

const (
	fateNone      fate = iota
	fateTimeout        // its timeout passed, and it was killed
	fateCancelled      // its owner asked for its end, and it was killed
	fateBroken         // its output could not be kept, and it was killed
	fateDiskFull       // its workspace is over its quota, and it was killed
)

// An ending is all information about the end of a run.
type ending struct {
	// event is the guest's end event, or nil if the sandbox was lost first. why
	// is the reason for which the sandbox stops, or nil.
	event *guestapi.EndEvent
	why   *reason

	// context is the guest's end of a run in a context, which is also in event.
	// exception is the exception that ended it.
	context   *guestapi.ExecutionEnd
	exception *sandbox.RunError

	fate    fate
	broken  error // with fateBroken and fateDiskFull
	timeout time.Duration
	lasted  time.Duration // by the engine's clock
	limits  sandbox.Limits

	// before and after are the driver's counts for the whole sandbox; they are
	// valid if counted is set. alone means that no other run was in progress in
	// the sandbox.
	before, after driver.Incidents
	counted       bool
	alone         bool
}

// Next steps that several verdicts share.
const (
	nextMemory    = "make a sandbox with more memory, or process the data in smaller pieces"
	nextTime      = "ask for a longer timeout, or split the work"
	nextDisk      = "make a sandbox with more disk, or remove files that are not needed"
	nextWorkspace = "remove files of the workspace that are not needed, or use another workspace"
	nextForks     = "make a sandbox with a higher limit, or start fewer processes at a time"
	nextNotFound  = "check the spelling; list the languages to see what is installed"
)

// Exit statuses of shells: the command could not be executed, or was not found.
// For a command that a signal killed, the status is exitSignal plus its number.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128
)

const sigKill = 9

// asByShell returns the end of a program as a shell that ran it would report it.
// It changes only crashes: the signals that end a run also end the shell.
func asByShell(end *guestapi.EndEvent) *guestapi.EndEvent {
	if end.Exited || end.Detail == nil || !slices.Contains(crashes, end.Detail.Signal) {
		return end
	}
	told := *end
	told.Exited, told.ExitCode = true, int32(exitSignal+end.Detail.Signal)
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

// settle judges how a run ended. The engine's own fate for it comes first, then
// a lost sandbox, then success. A failure gets the most specific cause that the
// guest and the driver saw. The exit code is nil for a program that did not
// exit by itself.
func settle(e ending) (sandbox.Verdict, *int) {
	if e.context != nil {
		return e.settleContext(), e.context.ExitCode
	}
	code := e.exitCode()
	switch {
	case e.fate == fateTimeout || e.event != nil && e.detail().TimedOut:
		return sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("it ran longer than its timeout of %v and was killed", e.timeout),
			NextStep: nextTime,
		}, nil
	case e.fate == fateCancelled:
		return sandbox.Verdict{Code: sandbox.Cancelled, Cause: "it was stopped on request"}, nil
	case e.fate == fateBroken:
		return unkept("output", e.broken), nil
	case e.fate == fateDiskFull:
		return overQuota(e.broken), code
	case e.why != nil && (e.event == nil || !e.event.Exited):
		return e.why.verdict(), nil
	case e.event == nil:
		return sandbox.Verdict{
			Code:     sandbox.SandboxLost,
			Cause:    "the sandbox lost track of it",
			NextStep: "run it again",
		}, nil
	case e.event.Error != "":
		return sandbox.Verdict{Code: sandbox.Failed, Cause: "it could not be run: " + e.event.Error}, code
	case code != nil && *code == 0:
		return sandbox.Verdict{Code: sandbox.OK}, code
	}
	return e.failure(code), code
}

// unkept is the verdict on a run whose output or result could not be kept.
func unkept(what string, err error) sandbox.Verdict {
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

// unsaved is the verdict on a run whose files stayed in the sandbox.
func unsaved(v sandbox.Verdict, err error) sandbox.Verdict {
	const note = "what it wrote could not be copied to the workspace: "
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
func (e ending) failure(code *int) sandbox.Verdict {
	d := e.detail()
	switch {
	case e.outOfMemory(code):
		return sandbox.Verdict{
			Code:     sandbox.OutOfMemory,
			Cause:    fmt.Sprintf("it used more than the sandbox's %s of memory", sandbox.FormatBytes(e.limits.MemoryBytes)),
			NextStep: nextMemory,
		}
	case d.ProcessLimit || e.counted && e.alone && e.after.ProcessRefusals > e.before.ProcessRefusals:
		return sandbox.Verdict{
			Code:     sandbox.TooManyProcesses,
			Cause:    fmt.Sprintf("it reached the sandbox's limit of %d processes and threads", e.limits.Processes),
			NextStep: nextForks,
		}
	case d.DiskFull:
		return sandbox.Verdict{
			Code:     sandbox.DiskFull,
			Cause:    fmt.Sprintf("it filled the sandbox's disk of %s", sandbox.FormatBytes(e.limits.DiskBytes)),
			NextStep: nextDisk,
		}
	case code == nil:
		return sandbox.Verdict{Code: sandbox.Killed, Cause: "it was killed by " + signalText(d.Signal, e.event.Status)}
	}
	v := sandbox.Verdict{Code: sandbox.Failed, Cause: fmt.Sprintf("it exited with status %d", *code)}
	switch {
	case *code == exitNotFound:
		v.Cause += ", which means that a command was not found"
		v.NextStep = nextNotFound
	case *code == exitNotExecutable:
		v.Cause += ", which means that a command could not be executed"
		v.NextStep = "check that the file is a program and has the mode for it"
	case *code > exitSignal && *code <= exitSignal+64:
		v.Cause += ", which means that a command was killed by " + signalText(*code-exitSignal, "")
	}
	return v
}

// outOfMemory reports whether a program failed for lack of memory. A kill that
// the driver counted is attributed to this program if the program was killed,
// or if no other run was in progress.
func (e ending) outOfMemory(code *int) bool {
	if e.detail().MemoryKill {
		return true
	}
	if !e.counted || e.after.MemoryKills <= e.before.MemoryKills {
		return false
	}
	looksKilled := code == nil && e.detail().Signal == sigKill || code != nil && *code == exitSignal+sigKill
	return looksKilled || e.alone
}

func (e ending) detail() guestapi.EndDetail {
	if e.event == nil || e.event.Detail == nil {
		return guestapi.EndDetail{}
	}
	return *e.event.Detail
}

func (e ending) exitCode() *int {
	if e.event == nil || !e.event.Exited || e.event.Error != "" {
		return nil
	}
	code := int(e.event.ExitCode)
	return &code
}

// usage returns the guest's figures for the run, bounded by the possible
// values. Invented figures must not spoil sums over many runs.
func (e ending) usage() sandbox.Usage {
	d := e.detail()
	// Round up to whole CPUs, and allow a second for the difference between
	// clocks.
	cpus := int64(math.Ceil(e.limits.CPUs))
	most := cpus * (max(e.lasted, 0).Milliseconds() + 1000)
	return sandbox.Usage{
		CPUMillis:       min(max(d.CPUMillis, 0), most),
		PeakMemoryBytes: min(max(d.PeakMemoryBytes, 0), e.limits.MemoryBytes),
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
		Cause:    fmt.Sprintf("it wrote more than %v, and was ended", why),
		NextStep: nextWorkspace,
	}
}
