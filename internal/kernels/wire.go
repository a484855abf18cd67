package kernels

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// KeySize is the length of a context's key.
	KeySize = 32
	// MaxMessage bounds a message: key, mark and piece.
	MaxMessage = 64 << 10
	// MaxEvent bounds an event, put together.
	MaxEvent = 32 << 20
	// maxPieces bounds the messages that make one event.
	maxPieces = MaxEvent / (16 << 10)
)

// An Init is what a kernel is told at its start.
type Init struct {
	// Key marks the kernel's messages: KeySize characters from 0-9a-f.
	Key string
	// Prepare names modules to import ahead.
	Prepare []string
}

// Start returns what is written to the pipe of requests first. Command is what
// was started, as for Args.
func (p Program) Start(command string, init Init) []byte {
	if p.Shell {
		return p.shell(command, init.Key, true)
	}
	source, hello := pieces(pythonKernel), map[string]any{"op": "init", "key": init.Key, "prepare": init.Prepare, "rich": pieces(pythonRich)}
	if p.Language != "python" {
		source, hello = []string{javascriptKernel}, map[string]any{"op": "init", "key": init.Key, "prepare": init.Prepare, "transform": javascriptTransform}
	}
	var b []byte
	for _, piece := range source {
		b = fmt.Appendf(b, "%08d%s", len(piece), piece)
	}
	return append(b, request(hello)...)
}

// pieceSize is how long a piece of a Python program is at least, in bytes, but for
// the last.
const pieceSize = 4 << 10

// pieces divides a Python program where two lines are empty, which is between
// definitions and never within one. Python needs some thirty times a program's size
// to compile it.
func pieces(source string) []string {
	const boundary = "\n\n\n"
	var out []string
	for len(source) > pieceSize {
		at := strings.Index(source[pieceSize:], boundary)
		if at < 0 {
			break
		}
		at += pieceSize + len(boundary)
		out, source = append(out, source[:at]), source[at:]
	}
	return append(out, source)
}

// Restart returns what a shell is sent that executed itself anew, which an
// event end with Restart tells. What is behind the code of the run in the file
// of code must have been moved to its beginning. The shell says ready when it
// has taken that in.
func (p Program) Restart(command, key string) []byte {
	return append(p.shell(command, key, false), "__gb_read\neval \"$__gb_code\"\n__gb_traps\n__gb_ready\n"...)
}

// A Run is one execution.
type Run struct {
	ID    int // from 1, rising
	Code  string
	Env   map[string]string // for this run only
	Base  map[string]string // from this run on
	Stdin bool              // somebody answers requests for input
}

// Run returns the request of a run. A shell takes the code from its file,
// where it must be.
func (p Program) Run(r Run) []byte {
	if p.Shell {
		return p.shellRun(r)
	}
	return request(map[string]any{
		"op": "run", "id": r.ID, "code": r.Code, "env": r.Env, "base": r.Base, "stdin": r.Stdin, "language": p.Language,
	})
}

// Prepare returns the request to import modules, which an event prepared
// answers. A shell has none.
func (p Program) Prepare(modules []string) []byte {
	return request(map[string]any{"op": "prepare", "modules": modules})
}

// Input returns the answer to an event input: a line, or the end of input.
func (p Program) Input(id int, line string, eof bool) []byte {
	answer := map[string]any{"op": "input", "id": id, "text": line}
	if eof {
		answer["text"] = nil
	}
	return request(answer)
}

// Reseed returns a request that makes random numbers differ from those of a
// copy of the process. A shell has none to ask; its RANDOM is set.
func (p Program) Reseed(seed uint32) []byte {
	if p.Shell {
		return fmt.Appendf(nil, "RANDOM=%d\n", seed)
	}
	return request(map[string]any{"op": "reseed"})
}

// request encodes a request. What is given here can always be encoded.
func request(v map[string]any) []byte {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	out := b.Bytes()
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// shellDescriptors are the numbers of a shell's descriptors.
var shellDescriptors = []struct{ word, bash, sh string }{
	{"F_REQ", "240", "3"}, {"F_EVT", "241", "4"}, {"F_COD", "242", "5"},
	{"F_INP", "243", "6"}, {"F_OUT", "244", "7"}, {"F_ERR", "245", "8"},
}

// numbered fills in the numbers of descriptors.
func (p Program) numbered(script string) string {
	for _, d := range shellDescriptors {
		n := d.sh
		if p.Language == "bash" {
			n = d.bash
		}
		script = strings.ReplaceAll(script, d.word, n)
	}
	return script
}

// shell returns the shell kernel.
func (p Program) shell(command, key string, first bool) []byte {
	self := quote(command) + " -s"
	if p.Language == "bash" {
		self = quote(command) + " --norc --noprofile -s"
	}
	var out strings.Builder
	for line := range strings.Lines(shellKernel) {
		keep := true
		for {
			word, rest, found := strings.Cut(line, " ")
			switch {
			case found && (word == "#bash" || word == "#sh"):
				keep = keep && word == "#"+p.Language
			case found && word == "#first":
				keep = keep && first
			default:
				found = false
			}
			if !found {
				break
			}
			line = rest
		}
		if keep && !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return []byte(strings.NewReplacer("KEY", key, "INTERPRETER", self).Replace(p.numbered(out.String())))
}

// shellRun returns the lines of a run.
func (p Program) shellRun(r Run) []byte {
	var b, back strings.Builder
	fmt.Fprintf(&b, "__gb_begin %d\n", r.ID)
	for _, name := range slices.Sorted(maps.Keys(r.Base)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(r.Base[name]))
	}
	names := slices.Sorted(maps.Keys(r.Env))
	for i, name := range names {
		fmt.Fprintf(&b, "__gb_e%d=${%s+x}${%s-}\nexport %s=%s\n", i, name, name, name, quote(r.Env[name]))
		fmt.Fprintf(&back, "case $__gb_e%d in x*) %s=${__gb_e%d#x};; *) unset %s;; esac; ", i, name, i, name)
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, "__gb_env_back() { %s}\n", back.String())
	}
	input := "/dev/null"
	if r.Stdin {
		input = "&F_INP"
	}
	// In a POSIX shell a syntax error ends a shell that evals it, but not one
	// that is commanded to.
	eval := "eval"
	if p.Language != "bash" {
		eval = "command eval"
	}
	fmt.Fprintf(&b, "%s \"$__gb_code\" 0<%s 1>&F_OUT 2>&F_ERR\n__gb_status=$?\n", eval, input)
	if len(names) > 0 {
		b.WriteString("__gb_env_back\n__gb_env_back() { :; }\n")
	}
	b.WriteString("__gb_end \"$__gb_status\"\n")
	return []byte(p.numbered(b.String()))
}

// quote returns s as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ValidEnvName reports whether a shell can have a variable of that name.
func ValidEnvName(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// An Event is what a kernel says. Which fields are set depends on Ev.
type Event struct {
	Ev string `json:"ev"`
	// ID is the run's, 0 if it belongs to none.
	ID int `json:"id"`

	// Of result: the MIME types, each a string (binary ones in base64) or a
	// JSON value; Main is set for the value of the last expression.
	Data map[string]json.RawMessage `json:"data"`
	Main bool                       `json:"main"`

	// Of error. Line is the failing line of the run's code, from 1, and Text
	// what it says; 0 if it is not known. Late has Text too, and Stream.
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
	Line      int    `json:"line"`
	Text      string `json:"text"`
	Stream    string `json:"stream"`

	// Of input.
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`

	// Of end: the main result, if it was not sent before.
	Result map[string]json.RawMessage `json:"result"`
	// Of end. Status is ok, error (an exception), exit (a code that is not 0)
	// or interrupted; a shell leaves it out. Restart says that the shell
	// executes itself anew.
	Status string `json:"status"`
	// Spawned is false if the kernel knows that no process was ever started.
	Spawned  *bool `json:"spawned"`
	ExitCode *int  `json:"exit_code"`
	Restart  bool  `json:"restart"`

	// Of ready.
	Language string `json:"language"`
	Version  string `json:"version"`
}

// The errors of an Assembler.
var (
	// ErrForeign is that of a message without the key.
	ErrForeign = errors.New("message is not the kernel's")
	// ErrMalformed is that of a message with the key that makes no sense.
	ErrMalformed = errors.New("message is malformed")
)

// An Assembler puts messages together to events.
type Assembler struct {
	Key    string
	buf    []byte
	pieces int
}

// Add takes a message. It returns an event when one is complete, and whether
// the kernel waits for an answer. What it does not understand it drops, with
// an error; the next message may be good.
func (a *Assembler) Add(msg []byte) (ev *Event, ask bool, err error) {
	if len(msg) <= KeySize || string(msg[:KeySize]) != a.Key {
		return nil, false, ErrForeign
	}
	mark, piece := msg[KeySize], msg[KeySize+1:]
	a.pieces++
	if len(a.buf)+len(piece) > MaxEvent || a.pieces > maxPieces || strings.IndexByte("+.?", mark) < 0 {
		a.reset()
		return nil, mark == '?', ErrMalformed
	}
	if mark == '+' {
		a.buf = append(a.buf, piece...)
		return nil, false, nil
	}
	if len(a.buf) > 0 {
		piece = append(a.buf, piece...)
	}
	a.reset()
	ev = new(Event)
	if err := json.Unmarshal(piece, ev); err != nil || ev.Ev == "" {
		return nil, mark == '?', ErrMalformed
	}
	ev.fix()
	return ev, mark == '?', nil
}

func (a *Assembler) reset() { a.buf, a.pieces = nil, 0 }

// fix makes what a kernel says about a run what the guest can rely on.
func (e *Event) fix() {
	if e.Ev != "end" {
		return
	}
	if e.Status == "" {
		e.Status = "ok"
		if e.ExitCode != nil && *e.ExitCode != 0 {
			e.Status = "exit"
		}
	}
	if !slices.Contains([]string{"ok", "error", "exit", "interrupted"}, e.Status) {
		e.Status = "error"
	}
}

// String names an event for a log.
func (e *Event) String() string { return e.Ev + " of run " + strconv.Itoa(e.ID) }
