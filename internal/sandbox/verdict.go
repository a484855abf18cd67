package sandbox

// A VerdictCode is how a run ended. A program that fails is a verdict, never a
// Go error; an error means that Glovebox failed.
type VerdictCode string

// The verdicts.
const (
	OK               VerdictCode = "ok"
	Failed           VerdictCode = "failed" // non-zero exit, or an exception
	Timeout          VerdictCode = "timeout"
	OutOfMemory      VerdictCode = "out_of_memory"
	DiskFull         VerdictCode = "disk_full"
	TooManyProcesses VerdictCode = "too_many_processes"
	Killed           VerdictCode = "killed"    // by a signal that nobody here sent
	Cancelled        VerdictCode = "cancelled" // by the caller
	SandboxLost      VerdictCode = "sandbox_lost"
)

// A Verdict names how a run ended, why in one line, and what the caller might
// do about it.
type Verdict struct {
	Code     VerdictCode `json:"code"`
	Cause    string      `json:"cause,omitempty"`
	NextStep string      `json:"next_step,omitempty"`
}
