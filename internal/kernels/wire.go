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

	"github.com/glovebox-dev/glovebox/internal/language"
)

const (
	// KeySize is the length of a context's key.
	KeySize = 32
	// MaxMessage bounds a message: key, mark and piece, in bytes.
	MaxMessage = 64 << 10
	// MaxEvent bounds an assembled event, in bytes.
	MaxEvent = 32 << 20
	// maxPieces bounds the messages of one event.
	maxPieces = MaxEvent / (16 << 10)
)

// An Init is the first request to a kernel.
type Init struct {
	// Key marks the kernel's messages: KeySize characters from 0-9a-f.
	Key string
	// Prepare names modules to import in advance.
	Prepare []string
}

// Start returns the first data for the pipe of requests. Command is the
// interpreter that was started, as for Args.
func (p Program) Start(command string, init Init) []byte {
	if p.Shell {
		return p.shell(command, init.Key, true)
	}
	if p.Fields {
		source := map[string]string{language.R: rKernel}[p.Language] // Java reads it from a file
		var b []byte
		if source != "" {
			b = fmt.Appendf(b, "%08d%s", len(source), source)
		}
		return append(b, fields(append([]string{"key", init.Key}, modules(init.Prepare)...)...)...)
	}
	// A part of several files has one namespace.
	source, hello := pieces(pythonKernel), map[string]any{
		"op": "init", "key": init.Key, "prepare": init.Prepare,
		"rich":   append(pieces(pythonRich), pieces(pythonShim)...),
		"syntax": pieces(pythonSyntax),
		"shell":  append(pieces(pythonShell), pieces(pythonMagics)...),
	}
	if p.Name == language.IPython {
		hello["ipython"] = pieces(pythonIPython)
	}
	if p.Language != language.Python {
		source, hello = []string{javascriptKernel}, map[string]any{"op": "init", "key": init.Key, "prepare": init.Prepare, "transform": javascriptTransform}
	}
	var b []byte
	for _, piece := range source {
		b = fmt.Appendf(b, "%08d%s", len(piece), piece)
	}
	return append(b, request(hello)...)
}

// pieceSize is the minimum size of a piece of a Python program, except the last,
// in bytes.
const pieceSize = 4 << 10

// pieces splits a Python program at pairs of empty lines, which are always
// between definitions. Smaller pieces save memory: Python needs about thirty
// times a program's size to compile it.
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

// Restart returns the request to a shell that executed itself anew, after an
// event end with Restart. Before it, the guest moves the state, which follows
// the run's code in the file of code, to the file's beginning. The shell sends
// ready when it has restored the state.
func (p Program) Restart(command, key string) []byte {
	return append(p.shell(command, key, false), "__gb_read\neval \"$__gb_code\"\n__gb_traps\n__gb_ready\n"...)
}

// A Run is one execution.
type Run struct {
	ID   int // from 1, increasing
	Code string
	Env  map[string]string // for this run only
	Base map[string]string // from this run on
	// Cwd and Unset are for the first run of a program that moves: the directory
	// that the interpreter goes to, and variables that it does not keep.
	Cwd   string
	Unset []string
	Stdin bool // a client answers requests for input
	E2B   bool // results are as E2B's interpreter gives them
}

// Run returns the request for a run. A shell reads the code from its file, into
// which the guest must have written it.
func (p Program) Run(r Run) []byte {
	if p.Shell {
		return p.shellRun(r)
	}
	if p.Fields {
		out := []string{"op", "run", "id", strconv.Itoa(r.ID), "code", r.Code, "stdin", flag(r.Stdin)}
		for _, name := range slices.Sorted(maps.Keys(r.Base)) {
			out = append(out, "base "+name, r.Base[name])
		}
		for _, name := range slices.Sorted(maps.Keys(r.Env)) {
			out = append(out, "env "+name, r.Env[name])
		}
		return fields(out...)
	}
	return request(map[string]any{
		"op": "run", "id": r.ID, "code": r.Code, "env": r.Env, "base": r.Base, "stdin": r.Stdin, "language": p.Language, "e2b": r.E2B,
		"cwd": r.Cwd, "unset": r.Unset,
	})
}

// Prepare returns the request to import modules. The event prepared answers it.
// A shell does not support it.
func (p Program) Prepare(names []string) []byte {
	if p.Fields {
		return fields(append([]string{"op", "prepare"}, modules(names)...)...)
	}
	return request(map[string]any{"op": "prepare", "modules": names})
}

// Cloned returns what tells a kernel that a snapshot gave it its state, or nil if this
// kernel has no use for it. No event answers it.
func (p Program) Cloned() []byte {
	if p.Shell || p.Fields || p.Language != language.Python {
		return nil
	}
	return request(map[string]any{"op": "cloned"})
}

// Input returns the answer to an event input: a line, or the end of the input.
func (p Program) Input(id int, line string, eof bool) []byte {
	if p.Fields {
		return fields("op", "input", "id", strconv.Itoa(id), "text", line, "eof", flag(eof))
	}
	answer := map[string]any{"op": "input", "id": id, "text": line}
	if eof {
		answer["text"] = nil
	}
	return request(answer)
}

// fields encodes a request to an interpreter without JSON: its length, and names
// and values in turn, each after its own length (four bytes, big endian).
func fields(texts ...string) []byte {
	out := make([]byte, 4)
	for _, s := range texts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(s)))
		out = append(out, s...)
	}
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// modules returns the fields of modules to prepare.
func modules(names []string) []string {
	var out []string
	for i, name := range names {
		out = append(out, "module "+strconv.Itoa(i), name)
	}
	return out
}

// flag returns the value of a field for yes or no.
func flag(yes bool) string {
	if yes {
		return "1"
	}
	return ""
}

// request encodes a request. It panics if v cannot be encoded, which is a bug.
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

// shellDescriptors are the numbers of a shell's private descriptors.
var shellDescriptors = []struct{ word, bash, sh string }{
	{"F_REQ", "240", "3"}, {"F_EVT", "241", "4"}, {"F_COD", "242", "5"},
	{"F_INP", "243", "6"}, {"F_OUT", "244", "7"}, {"F_ERR", "245", "8"},
}

// numbered replaces the F_ words in a script by the numbers of descriptors.
func (p Program) numbered(script string) string {
	for _, d := range shellDescriptors {
		n := d.sh
		if p.Language == language.Bash {
			n = d.bash
		}
		script = strings.ReplaceAll(script, d.word, n)
	}
	return script
}

// shell returns the shell kernel for a kind of shell.
func (p Program) shell(command, key string, first bool) []byte {
	self := quote(command) + " -s"
	if p.Language == language.Bash {
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

// shellRun returns the request for a run in a shell.
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
	// A syntax error in eval ends a POSIX shell. With "command eval" it does
	// not.
	eval := "eval"
	if p.Language != language.Bash {
		eval = "command eval"
	}
	fmt.Fprintf(&b, "%s \"$__gb_code\" 0<%s 1>&F_OUT 2>&F_ERR\n__gb_status=$?\n", eval, input)
	if len(names) > 0 {
		b.WriteString("__gb_env_back\n__gb_env_back() { :; }\n")
	}
	b.WriteString("__gb_end \"$__gb_status\"\n")
	return []byte(p.numbered(b.String()))
}

// quote returns s as one word of shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ValidEnvName reports whether name is a valid variable name in a shell.
func ValidEnvName(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// An Event is a message of a kernel. Ev decides which fields are set.
type Event struct {
	Ev string `json:"ev"`
	// ID is the number of the run, 0 without one.
	ID int `json:"id"`

	// Of result: the values by MIME type. Each is a string (base64 for binary
	// types) or a JSON value. Main is set for the value of the last expression.
	Data map[string]json.RawMessage `json:"data"`
	Main bool                       `json:"main"`

	// Of error: Line is the failing line of the run's code, from 1, or 0 if it
	// is not known. Text is the text of that line. Of late: Text and Stream.
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
	// Of end: Status is ok, error (an exception), exit (a code other than 0) or
	// interrupted. A shell omits it. Restart is set if the shell executes itself
	// anew.
	Status string `json:"status"`
	// Spawned is false if the kernel knows that no process was started.
	Spawned  *bool `json:"spawned"`
	ExitCode *int  `json:"exit_code"`
	Restart  bool  `json:"restart"`

	// Of ready.
	Language string `json:"language"`
	Version  string `json:"version"`
}

// The errors of an Assembler.
var (
	// ErrForeign is the error of a message without the key.
	ErrForeign = errors.New("message is not the kernel's")
	// ErrMalformed is the error of a message with the key that is not valid.
	ErrMalformed = errors.New("message is malformed")
)

// An Assembler assembles messages to events. Key must be set.
type Assembler struct {
	Key    string
	buf    []byte
	pieces int
}

// Next splits the first message from data, what was read from the pipe of events
// of a program with Fields. If it is not complete, n is 0. ErrMalformed is the
// error of a length that no message has: then nothing that follows is valid.
func Next(data []byte) (msg []byte, n int, err error) {
	if len(data) < 4 {
		return nil, 0, nil
	}
	size := binary.BigEndian.Uint32(data)
	if size > MaxMessage {
		return nil, 0, ErrMalformed
	}
	if n = 4 + int(size); len(data) < n {
		return nil, 0, nil
	}
	return data[4:n], n, nil
}

// Add adds a message. It returns an event when one is complete, and whether the
// kernel waits for an answer. It drops an invalid message with ErrForeign or
// ErrMalformed; the next message may be valid.
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

// fix corrects the status of an event end, so that the guest can rely on it.
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

// String returns the name of an event for a log.
func (e *Event) String() string { return e.Ev + " of run " + strconv.Itoa(e.ID) }
