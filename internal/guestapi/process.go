package guestapi

import "time"

// The procedures of the process service, as URL paths.
const (
	ProcStart      = "/process.Process/Start"      // server stream
	ProcConnect    = "/process.Process/Connect"    // server stream
	ProcList       = "/process.Process/List"       // unary, as all below
	ProcUpdate     = "/process.Process/Update"     // resize a terminal
	ProcSendInput  = "/process.Process/SendInput"  //
	ProcCloseStdin = "/process.Process/CloseStdin" //
	ProcSendSignal = "/process.Process/SendSignal" //
)

// ProcessConfig is what to run.
type ProcessConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

// PTYSize is the size of a terminal in characters.
type PTYSize struct {
	Cols uint32 `json:"cols"`
	Rows uint32 `json:"rows"`
}

// PTY asks for a terminal.
type PTY struct {
	Size *PTYSize `json:"size,omitempty"`
}

// StartRequest starts a process. The user comes in the Authorization header
// (Basic, name and no password); the header Connect-Timeout-Ms bounds how long
// the process may run, after which its whole tree is killed.
type StartRequest struct {
	Process ProcessConfig `json:"process"`
	PTY     *PTY          `json:"pty,omitempty"`
	// Tag names the process beside its pid; it must not be in use.
	Tag string `json:"tag,omitempty"`
	// Stdin says that input will be sent. If nil or true there is a pipe to
	// SendInput; if false the program reads end of file at once.
	Stdin *bool `json:"stdin,omitempty"`
	// Keep is ours, beyond E2B's protocol: nothing that the process writes is
	// lost while no stream is attached. What no stream took yet is held up to
	// a bound, then the process waits; its end is held until a stream took it.
	// Without Keep, what nobody reads is dropped.
	Keep bool `json:"keep,omitempty"`
}

// ProcessSelector names a process by pid or by tag.
type ProcessSelector struct {
	PID uint32 `json:"pid,omitempty"`
	Tag string `json:"tag,omitempty"`
}

// ConnectRequest attaches to a process that runs, or that ended with Keep and
// whose end no stream has taken. A start event comes first, then what is held,
// then what follows.
type ConnectRequest struct {
	Process ProcessSelector `json:"process"`
	// Have is how much output the caller has kept of a process with Keep. What
	// an earlier stream sent beyond it comes again, as far as the guest still
	// has it: a caller that died may not have kept all that was sent. Nil is
	// nothing again.
	Have *OutputCounts `json:"have,omitempty"`
}

// OutputCounts are numbers of bytes from a process's start. A terminal's output
// counts as Stdout.
type OutputCounts struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// EventMessage is one message of a process stream.
type EventMessage struct {
	Event ProcessEvent `json:"event"`
}

// ProcessEvent is one thing that happened to a process: exactly one field is
// set. The first event is Start, the last End.
type ProcessEvent struct {
	Start     *StartEvent     `json:"start,omitempty"`
	Data      *DataEvent      `json:"data,omitempty"`
	End       *EndEvent       `json:"end,omitempty"`
	Keepalive *KeepaliveEvent `json:"keepalive,omitempty"`
}

// StartEvent says that the process runs.
type StartEvent struct {
	PID uint32 `json:"pid"`
}

// DataEvent is output of the process; one field is set.
type DataEvent struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	PTY    []byte `json:"pty,omitempty"`
}

// KeepaliveEvent keeps a silent stream from looking dead.
type KeepaliveEvent struct{}

// EndEvent says how the process ended.
type EndEvent struct {
	ExitCode int32 `json:"exitCode"`
	// Exited is true if the process exited by itself, false if a signal
	// killed it.
	Exited bool `json:"exited"`
	// Status is text such as "exit status 3" or "signal: killed".
	Status string `json:"status"`
	// Error is set if the process could not be started or waited for.
	Error string `json:"error,omitempty"`

	// Detail is ours, beyond E2B's protocol.
	Detail *EndDetail `json:"detail,omitempty"`
}

// EndDetail is what the guest knows about how a process ended.
type EndDetail struct {
	// Signal is the number of the signal that killed the process, or 0.
	Signal int `json:"signal,omitempty"`
	// TimedOut says that the guest killed the tree at Connect-Timeout-Ms.
	TimedOut bool `json:"timedOut,omitempty"`
	// DiskFull says that the writable layer, or a memory file system, had no
	// room when the process ended or had refused a write of it.
	DiskFull bool `json:"diskFull,omitempty"`
	// ProcessLimit says that the process limit was reached.
	ProcessLimit bool `json:"processLimit,omitempty"`
	// MemoryKill says that the guest saw a process of the tree killed for
	// memory, or refused memory at the limit.
	MemoryKill bool `json:"memoryKill,omitempty"`
	// Left counts processes of the tree that were alive when it ended.
	Left int `json:"left,omitempty"`
	// CPUMillis and PeakMemoryBytes are what the tree used, as far as the
	// kernel tells.
	CPUMillis       int64 `json:"cpuMillis,omitempty"`
	PeakMemoryBytes int64 `json:"peakMemoryBytes,omitempty"`
}

// ListProcessesResponse lists processes that were started through the guest
// and live, or ended with Keep and were not taken.
type ListProcessesResponse struct {
	Processes []ProcessInfo `json:"processes"`
}

// ProcessInfo describes one process.
type ProcessInfo struct {
	Config ProcessConfig `json:"config"`
	PID    uint32        `json:"pid"`
	Tag    string        `json:"tag,omitempty"`
}

// UpdateRequest resizes the terminal of a process.
type UpdateRequest struct {
	Process ProcessSelector `json:"process"`
	PTY     *PTY            `json:"pty,omitempty"`
}

// ProcessInput is input for a process; one field is set.
type ProcessInput struct {
	Stdin []byte `json:"stdin,omitempty"`
	PTY   []byte `json:"pty,omitempty"`
}

// SendInputRequest writes to a process's input. The reply comes when the
// process (or the pipe's buffer) took all of it.
type SendInputRequest struct {
	Process ProcessSelector `json:"process"`
	Input   ProcessInput    `json:"input"`
}

// CloseStdinRequest ends a process's input.
type CloseStdinRequest struct {
	Process ProcessSelector `json:"process"`
}

// Signal is a signal's name on the wire.
type Signal string

// The signals. E2B's protocol has the first two.
const (
	SIGTERM Signal = "SIGNAL_SIGTERM"
	SIGKILL Signal = "SIGNAL_SIGKILL"
	SIGINT  Signal = "SIGNAL_SIGINT"
	SIGHUP  Signal = "SIGNAL_SIGHUP"
)

// SendSignalRequest signals a process. SIGKILL ends the whole tree: every
// descendant, also those that left the session or were adopted by init, and
// the reply comes when none is left. Other signals go to the process group.
type SendSignalRequest struct {
	Process ProcessSelector `json:"process"`
	Signal  Signal          `json:"signal"`
}

// MaxStreamMessage bounds one message of a stream, in bytes of JSON.
const MaxStreamMessage = 1 << 20

// KeepaliveInterval is how often the guest sends a keepalive on a silent
// process stream.
const KeepaliveInterval = 30 * time.Second
