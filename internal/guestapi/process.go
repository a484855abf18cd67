package guestapi

import "time"

// The procedures of the process service, as URL paths.
const (
	ProcStart      = "/process.Process/Start"      // server stream
	ProcConnect    = "/process.Process/Connect"    // server stream
	ProcList       = "/process.Process/List"       // unary, like all below
	ProcUpdate     = "/process.Process/Update"     // resize a terminal
	ProcSendInput  = "/process.Process/SendInput"  //
	ProcCloseStdin = "/process.Process/CloseStdin" //
	ProcSendSignal = "/process.Process/SendSignal" //
)

// ProcessConfig is the command of a process.
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

// PTY asks for a terminal of a size.
type PTY struct {
	Size *PTYSize `json:"size,omitempty"`
}

// StartRequest starts a process. The Authorization header names the user (Basic,
// without a password). The header Connect-Timeout-Ms bounds the run time of the
// process. At the timeout the guest kills the whole process tree.
type StartRequest struct {
	Process ProcessConfig `json:"process"`
	PTY     *PTY          `json:"pty,omitempty"`
	// Tag is a second name of the process; it must not be in use.
	Tag string `json:"tag,omitempty"`
	// Stdin, if nil or true, makes a pipe for SendInput. If it is false, the
	// program reads the end of file at once.
	Stdin *bool `json:"stdin,omitempty"`
	// Keep is ours, beyond E2B's protocol. Without it, output is dropped while
	// no stream is attached. With Keep the guest holds it up to a bound; then
	// the process blocks. The end is held until a stream took it.
	Keep bool `json:"keep,omitempty"`
	// Plots is ours: the directory of the module [PlotModule], which becomes the
	// program's backend of matplotlib. A backend that Process.Envs or the image
	// sets takes precedence.
	Plots string `json:"plots,omitempty"`
}

// PlotModule is the name of the module that keeps the figures of a program.
const PlotModule = "glovebox_plots"

// ProcessSelector names a process by its pid or its tag.
type ProcessSelector struct {
	PID uint32 `json:"pid,omitempty"`
	Tag string `json:"tag,omitempty"`
}

// ConnectRequest attaches to a process that runs, or that ended with Keep and
// whose end no stream took. The stream begins with a start event, the held
// output, and then new output.
type ConnectRequest struct {
	Process ProcessSelector `json:"process"`
	// Have is how much output the caller has saved of a process with Keep. The
	// guest sends the output beyond it again, as far as it still has it: a
	// caller that died may not have saved all output that it received. Nil sends
	// nothing again.
	Have *OutputCounts `json:"have,omitempty"`
}

// OutputCounts are numbers of bytes since the start of a process. A terminal's
// output counts as Stdout.
type OutputCounts struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// EventMessage is one message of a process stream.
type EventMessage struct {
	Event ProcessEvent `json:"event"`
}

// ProcessEvent is one event of a process: exactly one field is set. The first
// event is Start, the last is End.
type ProcessEvent struct {
	Start     *StartEvent     `json:"start,omitempty"`
	Data      *DataEvent      `json:"data,omitempty"`
	End       *EndEvent       `json:"end,omitempty"`
	Keepalive *KeepaliveEvent `json:"keepalive,omitempty"`
}

// StartEvent reports that the process runs.
type StartEvent struct {
	PID uint32 `json:"pid"`
}

// DataEvent is output of the process; one field is set.
type DataEvent struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	PTY    []byte `json:"pty,omitempty"`
}

// KeepaliveEvent shows that a silent stream is alive.
type KeepaliveEvent struct{}

// EndEvent reports how the process ended; see [End].
type EndEvent struct {
	ExitCode int32 `json:"exitCode"`
	// Exited is true if the process exited, false if a signal killed it.
	Exited bool `json:"exited"`
	// Status is text such as "exit status 3" or "signal: killed".
	Status string `json:"status"`
	// Error is set if the process could not be started or waited for.
	Error string `json:"error,omitempty"`

	// Detail is ours, beyond E2B's protocol.
	Detail *EndDetail `json:"detail,omitempty"`
}

// EndDetail is additional information about the end of a process.
type EndDetail struct {
	// Signal is the number of the signal that killed the process, or 0.
	Signal int `json:"signal,omitempty"`
	// TimedOut is set if the guest killed the tree at Connect-Timeout-Ms.
	TimedOut bool `json:"timedOut,omitempty"`
	// DiskFull is set if the writable layer, or a memory file system, was full
	// at the end of the process or had refused a write.
	DiskFull bool `json:"diskFull,omitempty"`
	// ProcessLimit is set if the process limit was reached.
	ProcessLimit bool `json:"processLimit,omitempty"`
	// MemoryKill is set if a process of the tree was OOM-killed, or was refused
	// memory at the limit.
	MemoryKill bool `json:"memoryKill,omitempty"`
	// Left counts the processes of the tree that outlived the process.
	Left int `json:"left,omitempty"`
	// CPUMillis and PeakMemoryBytes are the usage of the process and of the
	// descendants that it waited for. For a run, they are the interpreter's
	// alone. They are 0 if the OS kernel does not report them.
	CPUMillis       int64 `json:"cpuMillis,omitempty"`
	PeakMemoryBytes int64 `json:"peakMemoryBytes,omitempty"`
}

// ListProcessesResponse lists the processes that callers started. They are
// alive, or ended with Keep and no stream took their end. Interpreters of contexts
// are not among them, as with E2B: a caller that kills each one keeps its contexts.
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

// SendInputRequest writes to a process's input. The reply comes when the process
// or the buffer of its pipe took all of it.
type SendInputRequest struct {
	Process ProcessSelector `json:"process"`
	Input   ProcessInput    `json:"input"`
}

// CloseStdinRequest ends a process's input.
type CloseStdinRequest struct {
	Process ProcessSelector `json:"process"`
}

// Signal is the name of a signal on the wire.
type Signal string

// The signals. E2B's protocol has the first two.
const (
	SIGTERM Signal = "SIGNAL_SIGTERM"
	SIGKILL Signal = "SIGNAL_SIGKILL"
	SIGINT  Signal = "SIGNAL_SIGINT"
	SIGHUP  Signal = "SIGNAL_SIGHUP"
)

// SendSignalRequest signals a process. SIGKILL kills its whole tree, with the
// descendants that left the session or became orphans. The reply then comes when
// none is left. Other signals go to the process group.
type SendSignalRequest struct {
	Process ProcessSelector `json:"process"`
	Signal  Signal          `json:"signal"`
}

// MaxStreamMessage bounds one message of a stream, in bytes of JSON.
const MaxStreamMessage = 1 << 20

// KeepaliveInterval is the default interval of keepalives on a silent process
// stream.
const KeepaliveInterval = 30 * time.Second
