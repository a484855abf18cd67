package sandbox

// A VerdictCode is how a run ended. A program that fails is a verdict, never a
// Go error; an error means that Glovebox failed.
type VerdictCode string

// The verdicts.
const (
	OK               VerdictCode = "ok"                 // it ended well
	Failed           VerdictCode = "failed"             // non-zero exit, or an exception
	Timeout          VerdictCode = "timeout"            // its time was over
	OutOfMemory      VerdictCode = "out_of_memory"      // it needed more memory than there is
	DiskFull         VerdictCode = "disk_full"          // it wrote more than there is room for
	TooManyProcesses VerdictCode = "too_many_processes" // it started more processes or threads than it may
	Killed           VerdictCode = "killed"             // by a signal that nobody here sent
	Cancelled        VerdictCode = "cancelled"          // by the caller
	SandboxLost      VerdictCode = "sandbox_lost"       // its sandbox ended, or lost track of it
)

// A Verdict names how a run ended, why in one line, and what the caller might
// do about it.
type Verdict struct {
	Code     VerdictCode `json:"code"`
	Cause    string      `json:"cause,omitempty"`
	NextStep string      `json:"next_step,omitempty"`
}
