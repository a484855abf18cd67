package sandbox

// A VerdictCode says how a run ended. A program that fails is a verdict, never a
// Go error. A Go error means that Glovebox failed.
type VerdictCode string

// The verdicts.
const (
	OK               VerdictCode = "ok"                 // it succeeded
	Failed           VerdictCode = "failed"             // non-zero exit, or an exception
	Timeout          VerdictCode = "timeout"            // it exceeded its time limit
	OutOfMemory      VerdictCode = "out_of_memory"      // it needed more memory than its limit
	DiskFull         VerdictCode = "disk_full"          // it wrote more than its space
	TooManyProcesses VerdictCode = "too_many_processes" // it exceeded its limit of processes
	Killed           VerdictCode = "killed"             // by a signal of unknown origin
	Cancelled        VerdictCode = "cancelled"          // the caller cancelled it
	SandboxLost      VerdictCode = "sandbox_lost"       // its sandbox ended, or lost track of it
)

// A Verdict says how a run ended, why in one line, and what the caller can do
// about it.
type Verdict struct {
	Code     VerdictCode `json:"code"`
	Cause    string      `json:"cause,omitempty"`
	NextStep string      `json:"next_step,omitempty"`
}
