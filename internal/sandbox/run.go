package sandbox

import "time"

// A RunStatus says whether a run has ended.
type RunStatus string

// The statuses of a run.
const (
	RunRunning  RunStatus = "running"
	RunFinished RunStatus = "finished"
)

// A RunRequest asks for one execution. Exactly one of Code, Command and Argv
// is set.
type RunRequest struct {
	// SandboxID names the sandbox; with "", a fresh one is made as New says.
	SandboxID string
	New       CreateRequest

	// Code is a program in Language, run by the language's runner. Args are
	// the program's arguments.
	Code     string
	Language string
	Args     []string

	// Context, if not empty, names the context that Code is evaluated in, which
	// is made if it is not there; else the code is a program of its own. In the
	// [DefaultContext], so is code of a language that has no contexts; by any
	// other name that is of kind [Unsupported]. A context takes no Args, Dir,
	// Root or PTY, and runs in it take turns. Restart starts it fresh.
	Context string
	Restart bool

	// Commands are shell commands, each run anew as by /bin/sh -c, in order,
	// stopping at the first that fails.
	Commands []string

	// Argv is a program and its arguments, run without a shell.
	Argv []string

	// Dir is the working directory, [WorkDir] if empty. Env is added to the
	// sandbox's environment and may hold secrets. Root runs as sandbox-root, and
	// As as another user of the image, by name or number, perhaps with a colon
	// and a group: whoever may be root may be anybody.
	Dir  string
	Env  map[string]string
	Root bool
	As   string

	// Stdin, if not nil, is fed to the program, then closed. KeepStdin leaves
	// the input open, for send_input, until it is closed there.
	Stdin     []byte
	KeepStdin bool

	// PTY, if not nil, gives the program a terminal: all output is then on
	// the one stream that Stdout names.
	PTY *TerminalSize

	// Timeout is how long the program may run; zero takes the default.
	Timeout time.Duration
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Cols, Rows uint16
}

// A Run describes one execution as its owner sees it.
type Run struct {
	ID        string    `json:"run_id"`
	SandboxID string    `json:"sandbox_id"`
	Status    RunStatus `json:"status"`
	// Verdict and Exit are set when the run has finished. ExitCode is nil for
	// a program that did not exit by itself.
	Verdict  Verdict   `json:"verdict,omitzero"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at,omitzero"`
	Usage    Usage     `json:"usage"`
	// Network is what its sandbox reached meanwhile; nil if it has no network.
	Network *RunNetwork `json:"network,omitempty"`
	// Context is set for a run in one.
	Context *RunContext `json:"context,omitempty"`
	// Changes are what it changed in the workspace, when it has finished; nil
	// if its sandbox has none.
	Changes *Changes `json:"changes,omitempty"`
	// Input is set while a run in a context waits for input.
	Input *InputRequest `json:"waits_for,omitempty"`
}

// Usage is what a run consumed.
type Usage struct {
	CPUMillis       int64 `json:"cpu_ms"`
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
}

// A StreamName names one of a run's two output streams.
type StreamName string

// The output streams.
const (
	Stdout StreamName = "stdout"
	Stderr StreamName = "stderr"
)

// Output is what of a run's output fits a budget: the head and the tail of
// each stream, with a line in between that says how much is missing.
type Output struct {
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Omitted Omitted `json:"omitted"`
	// StdoutBytes and StderrBytes are how long the streams are.
	StdoutBytes int64 `json:"-"`
	StderrBytes int64 `json:"-"`
}

// Omitted counts the bytes of each stream that an Output leaves out.
type Omitted struct {
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
}

// DefaultOutputBytes is the budget of an Output whose reader asked for none.
const DefaultOutputBytes = 64 << 10
