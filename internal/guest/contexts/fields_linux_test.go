package contexts_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestContextR(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "Rscript")
	r := h.ends("r", "x <- 41\nprint(\"Hello, World!\")", guestapi.EndOK)
	same(t, "stdout", r.stdout, "[1] \"Hello, World!\"\n")
	r = h.ends("r", "cat('first\\n'); message('second')\nx + 1", guestapi.EndOK)
	same(t, "value", r.main(), "[1] 42")
	same(t, "stdout", r.stdout, "first\n")
	same(t, "stderr", r.stderr, "second\n")
	same(t, "count", r.count, 2)
	r = h.ends("r", "stop('no')", guestapi.EndError)
	if r.err == nil || r.err.Name != "Error" || r.err.Value != "no" || r.err.Line != 1 {
		t.Errorf("error is %+v", r.err)
	}
	r = h.ends("r", "quit(status = 3)", guestapi.EndExit)
	same(t, "exit code", *r.end.ExitCode, 3)
	r = h.ends("r", "plot(1:3)", guestapi.EndOK)
	if len(r.results) != 1 || r.results[0].Data["image/png"] == nil {
		t.Errorf("results of a plot: %+v, stderr %s", r.results, r.stderr)
	}
	// Events of many messages.
	r = h.ends("r", "noquote(strrep('a', 300000))", guestapi.EndOK)
	same(t, "a long value", len(r.main()), 300004)
	// A run whose time is over keeps the variables.
	r = gather(t, h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "repeat {}", TimeoutMillis: 300}), nil)
	same(t, "status of an endless run", r.end.Status, guestapi.EndInterrupted)
	same(t, "a variable", h.ends("r", "x", guestapi.EndOK).main(), "[1] 41")
	// Code that forges messages harms only itself.
	r = gather(t, h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "f <- file('/proc/self/fd/4', 'wb', raw = TRUE); writeBin(as.raw(rep(255, 100000)), f); close(f)", TimeoutMillis: 300}), nil)
	if r.end.Status == guestapi.EndOK {
		t.Errorf("a kernel whose pipe is broken ended a run as %+v", r.end)
	}
	same(t, "a new interpreter", h.ends("r", "exists('x')", guestapi.EndOK).main(), "[1] FALSE")
}

// R writes a line in pieces. Clients get it as one, and an incomplete line without
// its end.
func TestContextRLines(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "Rscript")
	x := h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "for (i in 1:200) { cat('[1]'); cat(' x'); cat('\\n') }", TimeoutMillis: 60000})
	lines := 0
	for {
		ev, err := x.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data == nil {
			continue
		}
		text := string(ev.Data.Stdout)
		if lines += strings.Count(text, "\n"); !strings.HasSuffix(text, "\n") {
			t.Fatalf("after %d lines: %q", lines, text)
		}
	}
	same(t, "lines", lines, 200)
	// The client gets this while the run goes on, and then ends the run.
	y := h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "cat('ready? '); repeat Sys.sleep(1)", TimeoutMillis: 60000})
	for {
		ev, err := y.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != nil {
			same(t, "an incomplete line", string(ev.Data.Stdout), "ready? ")
			break
		}
	}
	y.Close()
	r := gather(t, h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "cat('a'); cat('b'); message('c'); cat('d')", TimeoutMillis: 60000}), nil)
	same(t, "stdout", r.stdout, "abd")
	same(t, "stderr", r.stderr, "c\n")
}

func TestContextRInput(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "Rscript")
	x := h.eval(&guestapi.ExecuteRequest{Language: "r", Code: "a <- readline('name? ')\ntoupper(a)", Stdin: true, TimeoutMillis: 60000})
	r := gather(t, x, func(string) {
		if err := h.ContextInput(t.Context(), guestapi.DefaultContextID("r"), &guestapi.InputRequest{Text: "ada\n"}); err != nil {
			t.Error(err)
		}
	})
	same(t, "value", r.main(), `[1] "ADA"`)
	same(t, "prompts", strings.Join(r.prompts, "|"), "name? ")
}

// A language that is missing names what has it.
func TestContextMissingLanguage(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{Language: "r", Env: map[string]string{"PATH": "/nowhere"}})
	guesttest.WantKind(t, err, sandbox.NotFound, "r is not in this sandbox: no Rscript on its PATH; Debian's package is r-base-core")
}

func TestContextJava(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "javac")
	h.ends("java", "int x = 41;\nint half(int n) { return n / 2; }", guestapi.EndOK)
	r := h.ends("java", "System.out.println(\"Hello, World!\");\nSystem.err.println(\"second\");\nx + 1", guestapi.EndOK)
	same(t, "value", r.main(), "42")
	same(t, "stdout", r.stdout, "Hello, World!\n")
	same(t, "stderr", r.stderr, "second\n")
	same(t, "count", r.count, 2)
	r = h.ends("java", "throw new RuntimeException(\"no\");", guestapi.EndError)
	if r.err == nil || r.err.Name != "java.lang.RuntimeException" || r.err.Value != "no" || r.err.Line != 1 {
		t.Errorf("error is %+v", r.err)
	}
	r = gather(t, h.eval(&guestapi.ExecuteRequest{Language: "java", Code: "while (true) { x++; }", TimeoutMillis: 3000, GraceMillis: 30000}), nil)
	same(t, "status of an endless run", r.end.Status, guestapi.EndInterrupted)
	same(t, "a method", h.ends("java", "half(8)", guestapi.EndOK).main(), "4")
	x := h.eval(&guestapi.ExecuteRequest{Language: "java", Code: "new Scanner(System.in).nextLine()", Stdin: true, TimeoutMillis: 60000})
	r = gather(t, x, func(string) {
		if err := h.ContextInput(t.Context(), guestapi.DefaultContextID("java"), &guestapi.InputRequest{Text: "ada\n"}); err != nil {
			t.Error(err)
		}
	})
	same(t, "a line of input", r.main(), `"ada"`)
	// E2B's clients get the end of a line as a message of its own; ours do not.
	const line = "System.out.println(\"Hello, World!\");"
	if got, want := newE2BClient(t, h).output("java", line), []string{"Hello, World!", "\n"}; !slices.Equal(got, want) {
		t.Errorf("a client of E2B gets %q, want %q", got, want)
	}
	x = h.eval(&guestapi.ExecuteRequest{Language: "java", Code: line, TimeoutMillis: 60000})
	var texts []string
	for ev, err := x.Next(); err != io.EOF; ev, err = x.Next() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != nil && len(ev.Data.Stdout) > 0 {
			texts = append(texts, string(ev.Data.Stdout))
		}
	}
	if want := []string{"Hello, World!\n"}; !slices.Equal(texts, want) {
		t.Errorf("a client of ours gets %q, want %q", texts, want)
	}
	// The code ends the interpreter with it.
	r = h.ends("java", "System.exit(3);", guestapi.EndDied)
	same(t, "exit code", *r.end.ExitCode, 3)
	same(t, "a new interpreter", h.ends("java", "1 + 1", guestapi.EndOK).main(), "2")
}
