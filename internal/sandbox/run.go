package sandbox

import "time"

// A RunStatus says whether a run has ended.
type RunStatus string

// The statuses of a run.
const (
	RunRunning  RunStatus = "running"
	RunFinished RunStatus = "finished"
)

// A RunRequest asks for one execution. Exactly one of Code, Commands and Argv is
// set.
type RunRequest struct {
	// SandboxID names the sandbox. With "", a new sandbox is made as New says.
	SandboxID string
	New       CreateRequest

	// Code is a program in Language, run by the language's runner. Args are
	// the program's arguments.
	Code     string
	Language string
	Args     []string

	// Context, if not empty, names the context that evaluates Code. The context
	// is created if it does not exist. With an empty Context, Code is a program
	// of its own. The same holds in [DefaultContext] for a language that has no
	// contexts; any other name is then an error of kind [Unsupported]. A run in a
	// context takes no Args, Dir, Root or PTY. Runs in one context wait for each
	// other. Restart replaces the context's interpreter by a new one.
	Context string
	Restart bool

	// Commands are shell commands, each started as by /bin/sh -c, in order. The
	// first that fails ends the run.
	Commands []string

	// Argv is a program and its arguments, run without a shell.
	Argv []string

	// Dir is the working directory, [WorkDir] if empty. Env is added to the
	// sandbox's environment and may hold secrets. Root runs the program as root
	// of the sandbox. As runs it as another user of the image: a name or number,
	// optionally with a colon and a group. As needs no more rights than Root,
	// because root can become every user.
	Dir  string
	Env  map[string]string
	Root bool
	As   string

	// Stdin, if not nil, is written to the program's input, which is then closed.
	// KeepStdin leaves the input open for send_input, until send_input closes it.
	Stdin     []byte
	KeepStdin bool

	// PTY, if not nil, gives the program a terminal of this size. All output is
	// then in the stream Stdout.
	PTY *TerminalSize

	// Plots returns the figures of matplotlib that a program shows, or leaves open
	// at its exit, as results. A program that chooses a backend keeps it. A run in
	// a context always returns them.
	Plots bool

	// SixelWidth, if not 0, asks for each of Plots as sixels too, at most that many
	// pixels wide. They are previews of the type [MIMESixel]. A plot that the
	// sandbox cannot turn into sixels has none.
	SixelWidth int

	// Service, if not nil, makes the run a service. It then has no Stdin, KeepStdin,
	// PTY, Context and Timeout.
	Service *ServiceRequest

	// Timeout is how long the program may run. Zero takes the default. [Forever]
	// is as long as the sandbox.
	Timeout time.Duration

	// RollbackOnFailure gives the sandbox the state from before the run again, as
	// [Snapshot] describes it, if the verdict is not [OK]. The sandbox has no other
	// run meanwhile. The error is of kind [Unsupported] if the driver has no snapshots.
	RollbackOnFailure bool

	// Key, if not nil, is kept with the run for an hour. A second run of the same
	// principal with the same Key.Hash does not start: the error is of kind Conflict.
	Key *RunKey
}

// A RunKey identifies a request for a run that its caller may repeat.
type RunKey struct {
	// Hash is the hash of the caller's key. Request is equal for equal requests, and
	// does not reveal the request to a reader who has not the caller's key.
	Hash, Request [32]byte
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
	// Verdict and ExitCode are set when the run has finished. ExitCode is nil for
	// a program that did not exit by itself.
	Verdict  Verdict   `json:"verdict,omitzero"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at,omitzero"`
	Usage    Usage     `json:"usage"`
	// Network is what the sandbox reached during the run. It is nil if the
	// sandbox has no network.
	Network *RunNetwork `json:"network,omitempty"`
	// Context is set for a run in a context.
	Context *RunContext `json:"context,omitempty"`
	// Changes are the files that the run changed, set when it has finished: of the
	// workspace, or without one, of [WorkDir] and the user's home directory. It is nil
	// if the changes are not known.
	Changes *Changes `json:"changes,omitempty"`
	// Service is set for a run that is a service.
	Service *Service `json:"service,omitempty"`
	// Input is set while a run in a context waits for input.
	Input *InputRequest `json:"waits_for,omitempty"`
	// Rollback is set for a run with RollbackOnFailure that has failed.
	Rollback *Rollback `json:"rollback,omitempty"`
}

// A Rollback tells whether a failed run was undone.
type Rollback struct {
	// Done means that the sandbox has the state from before the run. Otherwise Cause
	// says why it has not.
	Done  bool   `json:"done"`
	Cause string `json:"cause,omitempty"`
	// Workspace means that the sandbox has a workspace, whose files stayed as the run
	// left them.
	Workspace bool `json:"workspace_kept,omitempty"`
}

// A ListedRun is a run in a list, with the beginning of its program.
type ListedRun struct {
	Run
	Language string `json:"language,omitempty"` // "" for a command
	// Program has at most 1,000 characters of the code or command. It is empty for a
	// run of a version that did not record it.
	Program string `json:"program,omitempty"`
}

// Usage counts the resources that a run consumed.
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

// Output is the part of a run's output that fits a budget. It has the head and
// the tail of each stream. A line between them says how many bytes are missing.
type Output struct {
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Omitted Omitted `json:"omitted"`
	// StdoutBytes and StderrBytes are the lengths of the whole streams.
	StdoutBytes int64 `json:"-"`
	StderrBytes int64 `json:"-"`
	// StdoutFrom and StderrFrom are the offsets of the first bytes that are left
	// out, or the lengths of the streams.
	StdoutFrom int64 `json:"-"`
	StderrFrom int64 `json:"-"`
}

// Omitted counts the bytes of each stream that an Output leaves out.
type Omitted struct {
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
}

// DefaultOutputBytes is the budget of an Output if its reader asks for none.
const DefaultOutputBytes = 64 << 10
