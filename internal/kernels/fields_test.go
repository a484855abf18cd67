package kernels

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A fieldsKernel is a live kernel that reads fields, as the guest starts it.
type fieldsKernel struct {
	t        *testing.T
	program  Program
	process  *os.Process
	requests *os.File
	events   *os.File
	partial  []byte
	assembly Assembler
	next     int

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	read           *sync.Cond
}

// outcome is what came of a run.
type outcome struct {
	stdout, stderr, main, status string
	exit                         int
	prompts                      []string
	results                      []map[string]json.RawMessage
	err                          *Event
}

// newFieldsKernel starts the kernel of a language, or skips the test.
func newFieldsKernel(t *testing.T, name string) *fieldsKernel {
	t.Helper()
	p, ok := Find(name)
	if !ok {
		t.Fatalf("there is no kernel of %s", name)
	}
	command, err := exec.LookPath(p.Commands[0])
	if err != nil {
		if required(p.Commands[0]) {
			t.Fatalf("%s is required: %v", p.Commands[0], err)
		}
		t.Skipf("no %s: %v", name, err)
	}
	k := &fieldsKernel{t: t, program: p, assembly: Assembler{Key: testKey}}
	k.read = sync.NewCond(&k.mu)
	theirs, requests, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	events, theirEvents, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command, p.Args(command)...)
	cmd.Dir = t.TempDir()
	// A sandbox bounds its memory, a test does not.
	cmd.Env = append(os.Environ(), "JDK_JAVA_OPTIONS=-Xmx256m", "LC_ALL=C.UTF-8", "KERNEL_TEST=of the context")
	cmd.Stdout, cmd.Stderr = &locked{k, &k.stdout}, &locked{k, &k.stderr}
	cmd.ExtraFiles = []*os.File{theirs, theirEvents}
	if p.Source != "" {
		name := filepath.Join(t.TempDir(), "source")
		if err := os.WriteFile(name, []byte(p.Source), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirEvents.Close()
	k.process, k.requests, k.events = cmd.Process, requests, events
	t.Cleanup(func() {
		requests.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		events.Close()
	})
	k.send(p.Start(command, Init{Key: testKey}))
	if ev := k.event(); ev.Ev != "ready" || ev.Language != p.Language || ev.Version == "" {
		t.Fatalf("the first event is %+v", ev)
	}
	return k
}

// A locked is a buffer of a kernel's.
type locked struct {
	k *fieldsKernel
	b *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	defer l.k.read.Broadcast()
	return l.b.Write(b)
}

func (k *fieldsKernel) send(b []byte) {
	k.t.Helper()
	if _, err := k.requests.Write(b); err != nil {
		k.t.Fatal(err)
	}
}

// event returns the next event.
func (k *fieldsKernel) event() *Event {
	k.t.Helper()
	buf := make([]byte, MaxMessage)
	for {
		message, n, err := Next(k.partial)
		if err != nil {
			k.t.Fatal(err)
		}
		if n > 0 {
			k.partial = k.partial[n:]
			ev, _, err := k.assembly.Add(message)
			if err != nil {
				k.t.Fatalf("%v: %.300q", err, message)
			}
			if ev != nil {
				return ev
			}
			continue
		}
		got, err := k.events.Read(buf)
		if err != nil {
			k.t.Fatalf("read an event: %v; stderr %s", err, k.stderr.String())
		}
		k.partial = append(k.partial, buf[:got]...)
	}
}

// run runs code. The test waits for until in its output before it interrupts the
// run, if that is not empty.
func (k *fieldsKernel) run(r Run, until string, lines ...string) *outcome {
	k.t.Helper()
	k.next++
	r.ID, r.Stdin = k.next, len(lines) > 0
	k.mu.Lock()
	k.stdout.Reset()
	k.stderr.Reset()
	k.mu.Unlock()
	k.send(k.program.Run(r))
	if until != "" {
		k.mu.Lock()
		for !strings.Contains(k.stdout.String(), until) {
			k.read.Wait()
		}
		k.mu.Unlock()
		if err := k.process.Signal(syscall.SIGINT); err != nil {
			k.t.Fatal(err)
		}
	}
	out := &outcome{}
	for {
		ev := k.event()
		if ev.ID != k.next {
			k.t.Fatalf("an event of another run: %+v", ev)
		}
		switch ev.Ev {
		case "result":
			out.results = append(out.results, ev.Data)
		case "error":
			out.err = ev
		case "input":
			out.prompts = append(out.prompts, ev.Prompt)
			line, eof := "", true
			if len(lines) > 0 {
				line, lines, eof = lines[0], lines[1:], false
			}
			k.send(k.program.Input(k.next, line, eof))
		case "end":
			out.status = ev.Status
			if ev.ExitCode != nil {
				out.exit = *ev.ExitCode
			}
			if text, ok := ev.Result["text/plain"]; ok {
				if err := json.Unmarshal(text, &out.main); err != nil {
					k.t.Fatal(err)
				}
			}
			k.settle()
			k.mu.Lock()
			defer k.mu.Unlock()
			out.stdout, out.stderr = k.stdout.String(), k.stderr.String()
			return out
		}
	}
}

// settle waits until the output so far has arrived: a mark that the kernel
// prints comes after it.
func (k *fieldsKernel) settle() {
	k.t.Helper()
	marks := map[string]string{
		"r":    `cat("<mark>"); cat("<mark>", file = stderr())`,
		"java": `System.out.print("<mark>"); System.err.print("<mark>");`,
	}
	k.next++
	k.send(k.program.Run(Run{ID: k.next, Code: marks[k.program.Language]}))
	for ev := k.event(); ev.Ev != "end"; ev = k.event() {
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range []*bytes.Buffer{&k.stdout, &k.stderr} {
		for !bytes.HasSuffix(b.Bytes(), []byte("<mark>")) {
			k.read.Wait()
		}
		b.Truncate(b.Len() - len("<mark>"))
	}
}

// code runs code that ends with a status.
func (k *fieldsKernel) code(code, status string) *outcome {
	k.t.Helper()
	out := k.run(Run{Code: code}, "")
	if out.status != status {
		k.t.Errorf("%q ended as %s, want %s; error %+v; stderr %s", code, out.status, status, out.err, out.stderr)
	}
	return out
}

func (k *fieldsKernel) same(what, got, want string) {
	k.t.Helper()
	if got != want {
		k.t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func TestNext(t *testing.T) {
	for _, data := range []string{"", "\x00\x00\x00", "\x00\x00\x00\x05abcd"} {
		if m, n, err := Next([]byte(data)); m != nil || n != 0 || err != nil {
			t.Errorf("%q gave %q, %d, %v", data, m, n, err)
		}
	}
	if m, n, err := Next([]byte("\x00\x00\x00\x02abcd")); string(m) != "ab" || n != 6 || err != nil {
		t.Errorf("got %q, %d, %v", m, n, err)
	}
	for _, data := range []string{"\x00\x01\x00\x01", "\xff\xff\xff\xff"} {
		if _, _, err := Next([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q gave %v", data, err)
		}
	}
	if _, n, err := Next(append([]byte{0, 1, 0, 0}, make([]byte, MaxMessage)...)); n != 4+MaxMessage || err != nil {
		t.Errorf("the longest message gave %d, %v", n, err)
	}
}

func TestFields(t *testing.T) {
	p := Program{Language: "r", Fields: true}
	b := bytes.NewReader(p.Run(Run{ID: 7, Code: "é", Env: map[string]string{"A": ""}, Base: map[string]string{"B": "2"}}))
	var got []string
	next := func() int {
		var size [4]byte
		if _, err := io.ReadFull(b, size[:]); err != nil {
			t.Fatal(err)
		}
		return int(size[2])<<8 | int(size[3])
	}
	if whole := next(); whole != b.Len() {
		t.Fatalf("a request of %d bytes says %d", b.Len(), whole)
	}
	for b.Len() > 0 {
		text := make([]byte, next())
		if _, err := io.ReadFull(b, text); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	if want := "op|run|id|7|code|é|stdin||base B|2|env A|"; strings.Join(got, "|") != want {
		t.Errorf("fields are %q, want %q", got, want)
	}
}

func TestR(t *testing.T) {
	t.Parallel()
	k := newFieldsKernel(t, "r")
	out := k.code("x <- 41\nprint(\"Hello, World!\")", "ok")
	k.same("stdout", out.stdout, "[1] \"Hello, World!\"\n")
	k.same("value", out.main, "")
	out = k.code("message('to stderr')\nx\nx + 1", "ok")
	k.same("stdout", out.stdout, "[1] 41\n")
	k.same("stderr", out.stderr, "to stderr\n")
	k.same("value", out.main, "[1] 42")
	k.same("a data frame", k.code("data.frame(a = 1:2, b = c('ü', '\"'))", "ok").main, "  a b\n1 1 ü\n2 2 \"")
	k.same("control characters", k.code("cat('\\001'); noquote('\\\\ \\t|')", "ok").main, "[1] \\\\ \\t|")
	k.same("nothing", k.code("", "ok").main, "")
	k.same("a long value", k.code("x <- strrep('a', 200000); noquote(x)", "ok").main, "[1] "+strings.Repeat("a", 200000))

	out = k.code("f <- function(n) {\n  stop('not ', n)\n}\n\nf(3)", "error")
	if out.err == nil || out.err.Name != "Error" || out.err.Value != "not 3" || out.err.Line != 5 || out.err.Text != "f(3)" {
		t.Errorf("error is %+v", out.err)
	} else {
		k.same("traceback", out.err.Traceback, "Error in f(3): not 3\nTraceback:\n1: f(3)\n2: stop(\"not \", n)")
	}
	out = k.code("1 +\n2 )", "error")
	if out.err == nil || out.err.Line != 2 || !strings.Contains(out.err.Value, "unexpected ')'") {
		t.Errorf("error of syntax is %+v", out.err)
	}
	out = k.code("stop(structure(class = c('mine', 'error', 'condition'), list(message = 'm', call = NULL)))", "error")
	if out.err == nil || out.err.Name != "mine" || out.err.Value != "m" {
		t.Errorf("error of an own class is %+v", out.err)
	}
	if out = k.code("as.integer('a')", "ok"); !strings.Contains(out.stderr, "NAs introduced") || out.main != "[1] NA" {
		t.Errorf("a warning gave %+v", out)
	}

	out = k.run(Run{Code: "unname(Sys.getenv(c('RUN', 'KERNEL_TEST')))", Env: map[string]string{"RUN": "of it"}}, "")
	k.same("environment", out.main, `[1] "of it"          "of the context"`)
	k.same("environment of the next run", k.code("Sys.getenv('RUN')", "ok").main, "[1] \"\"")
	k.run(Run{Code: "", Base: map[string]string{"RUN": "stays"}}, "")
	k.same("environment from a run on", k.code("Sys.getenv('RUN')", "ok").main, "[1] \"stays\"")

	out = k.run(Run{Code: "a <- readline('name? ')\nb <- readline()\npaste(a, b)"}, "", "Ada\n")
	k.same("input", out.main, "[1] \"Ada \"")
	k.same("prompts", strings.Join(out.prompts, "|"), "name? |")
	if out = k.code("readline()", "error"); out.err == nil || !strings.Contains(out.err.Value, "nobody can answer") {
		t.Errorf("input in a run without: %+v", out.err)
	}

	if out = k.code("quit(status = 3)", "exit"); out.exit != 3 {
		t.Errorf("exit code is %d", out.exit)
	}
	k.code("q()", "ok")
	out = k.run(Run{Code: "cat('begun\\n')\nrepeat Sys.sleep(0.01)"}, "begun")
	if out.status != "interrupted" || out.err == nil || out.err.Line != 2 {
		t.Errorf("an interrupt gave %+v, %+v", out, out.err)
	}
	k.same("a variable after all of it", k.code("nchar(x)", "ok").main, "[1] 200000")

	// Code that breaks what is the kernel's.
	k.code("paste0 <- function(...) stop('broken'); closeAllConnections(); sink(tempfile())", "ok")
	k.same("after a sink", k.code("cat('here\\n')", "ok").stdout, "here\n")

	out = k.code("plot(1:3)\nhist(c(1, 2, 2))", "ok")
	if len(out.results) != 2 {
		t.Fatalf("%d plots; stderr %s", len(out.results), out.stderr)
	}
	for _, r := range out.results {
		var png []byte
		if err := json.Unmarshal(r["image/png"], &png); err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) || !bytes.HasSuffix(png, []byte("IEND\xaeB`\x82")) {
			t.Errorf("a plot is %.40s, %v", r["image/png"], err)
		}
	}
	k.same("after plots", k.code("1", "ok").main, "[1] 1")
}

func TestJava(t *testing.T) {
	t.Parallel()
	k := newFieldsKernel(t, "java")
	out := k.code("int x = 41;\nSystem.out.println(\"Hello, World!\");", "ok")
	k.same("stdout", out.stdout, "Hello, World!\n")
	k.same("value", out.main, "")
	out = k.code("System.err.println(\"to stderr\");\nx + 1", "ok")
	k.same("stderr", out.stderr, "to stderr\n")
	k.same("value", out.main, "42")
	k.same("a value with a semicolon", k.code("x + 1;", "ok").main, "")
	k.same("a string", k.code("\"ü\\u0001\" + List.of(1, 2).stream().map(n -> n * 2).collect(Collectors.toList())", "ok").main, `"ü`+"\\001"+`[2, 4]"`)
	k.same("nothing", k.code("", "ok").main, "")
	if n := len(k.code("\"a\".repeat(200000)", "ok").main); n != 200002 {
		t.Errorf("a long value has %d characters", n)
	}

	out = k.code("int half(int n) {\n    return n / 0;\n}\n\nhalf(3)", "error")
	if out.err == nil || out.err.Name != "java.lang.ArithmeticException" || out.err.Value != "/ by zero" || out.err.Line != 2 || out.err.Text != "    return n / 0;" {
		t.Errorf("error is %+v", out.err)
	} else {
		k.same("traceback", out.err.Traceback, "java.lang.ArithmeticException: / by zero\n\tat half (line 2)\n\tat (line 5)")
	}
	out = k.code("int y = 1; int z = y +\n    nothing;", "error")
	if out.err == nil || out.err.Name != "CompileError" || out.err.Line != 2 || !strings.Contains(out.err.Value, "cannot find symbol") {
		t.Errorf("error of the compiler is %+v", out.err)
	}
	if out = k.code("int f() {\n", "error"); out.err == nil || out.err.Name != "CompileError" {
		t.Errorf("error of an incomplete cell is %+v", out.err)
	}
	out = k.code("throw new IllegalStateException(\"outer\", new java.io.IOException(\"inner\"));", "error")
	if out.err == nil || out.err.Value != "outer" || !strings.Contains(out.err.Traceback, "Caused by: java.io.IOException: inner") {
		t.Errorf("error with a cause is %+v", out.err)
	}
	if out = k.code("int g() { return later(); }", "ok"); !strings.Contains(out.stderr, "later()") {
		t.Errorf("a method that needs another one: %q", out.stderr)
	}
	k.same("once it is declared", k.code("int later() { return 5; }\ng()", "ok").main, "5")

	read := `System.getenv("RUN") + System.getenv("KERNEL_TEST")`
	k.same("environment", k.run(Run{Code: read, Env: map[string]string{"RUN": "of it "}}, "").main, `"of it of the context"`)
	k.same("environment of the next run", k.code(read, "ok").main, `"nullof the context"`)
	k.run(Run{Code: "", Base: map[string]string{"RUN": "stays "}}, "")
	k.same("environment from a run on", k.code(read, "ok").main, `"stays of the context"`)
	// E2B's interpreter has them as properties.
	read = `System.getProperty("RUN") + System.getProperty("KERNEL_TEST") + System.getProperty("file.encoding")`
	k.same("properties", k.run(Run{Code: read, Env: map[string]string{"RUN": "of it ", "file.encoding": "x"}}, "").main, `"of it of the contextUTF-8"`)
	k.same("properties of the next run", k.code(read, "ok").main, `"stays of the contextUTF-8"`)
	k.same("a property of a run alone", k.run(Run{Code: `System.getProperty("ONCE")`, Env: map[string]string{"ONCE": "1"}}, "").main, `"1"`)
	k.same("after it", k.code(`System.getProperty("ONCE", "none")`, "ok").main, `"none"`)

	out = k.run(Run{Code: "new Scanner(System.in).nextLine().toUpperCase()"}, "", "Ada\n")
	k.same("input", out.main, `"ADA"`)
	k.same("prompts", strings.Join(out.prompts, "|"), "")
	if out = k.code("System.in.read()", "error"); out.err == nil || !strings.Contains(out.err.Value, "nobody can answer") {
		t.Errorf("input in a run without: %+v", out.err)
	}
	for _, loop := range []string{"while (true) { x++; }", "Thread.sleep(100000);"} {
		out = k.run(Run{Code: "System.out.println(\"begun\");\n" + loop}, "begun")
		if out.status != "interrupted" || out.err == nil {
			t.Errorf("an interrupt gave %+v, %+v", out, out.err)
		}
	}
	out = k.code("long[][] all = new long[1 << 20][]; for (int i = 0; i < all.length; i++) all[i] = new long[1 << 24];", "error")
	if out.err == nil || out.err.Name != "java.lang.OutOfMemoryError" {
		t.Errorf("a full heap: %+v", out.err)
	}
	k.code("all = null;", "ok")
	// A program is run.
	out = k.code("import java.util.*;\n\npublic class Any {\n    public static void main(String[] args) {\n        System.out.println(\"main \" + args.length);\n        throw new RuntimeException(\"no\");\n    }\n}", "error")
	k.same("stdout of a program", out.stdout, "main 0\n")
	if out.err == nil || out.err.Line != 6 {
		t.Errorf("error of a program is %+v", out.err)
	}
	k.same("a class without main", k.code("class Some { int n = 3; }", "ok").stdout, "")
	k.same("its use", k.code("new Some().n", "ok").main, "3")
	// Code that breaks what is the kernel's.
	k.code("System.setOut(null); System.setIn(null); class String {}", "ok")
	k.same("after it", k.code("System.out.println(5);", "ok").stdout, "5\n")
}
