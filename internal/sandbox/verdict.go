package sandbox

// A VerdictCode says how a run ended. A program that fails is a verdict, never a
// Go error. A Go error means that Glovebox failed.
type VerdictCode string

// The verdicts.
const (
	OK               VerdictCode = "ok"                 // the program succeeded
	Failed           VerdictCode = "failed"             // the program had a non-zero exit status or an exception
	Timeout          VerdictCode = "timeout"            // the run exceeded its time limit
	OutOfMemory      VerdictCode = "out_of_memory"      // the run needed more memory than its limit
	DiskFull         VerdictCode = "disk_full"          // the run used all of its disk space or workspace
	TooManyProcesses VerdictCode = "too_many_processes" // the run reached its limit of processes
	Killed           VerdictCode = "killed"             // a signal of unknown origin ended the program
	Cancelled        VerdictCode = "cancelled"          // the caller cancelled the run
	SandboxLost      VerdictCode = "sandbox_lost"       // the sandbox ended, or lost track of the run
)

// VerdictCodes returns all verdicts.
func VerdictCodes() []VerdictCode {
	return []VerdictCode{OK, Failed, Timeout, OutOfMemory, DiskFull, TooManyProcesses, Killed, Cancelled, SandboxLost}
}

// A Verdict says how a run ended, why in one line, and what the caller can do
// about it.
type Verdict struct {
	Code     VerdictCode `json:"code"`
	Cause    string      `json:"cause,omitempty"`
	NextStep string      `json:"next_step,omitempty"`
}
