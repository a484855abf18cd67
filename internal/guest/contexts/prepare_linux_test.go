package contexts_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestContextMadeAhead has contexts that were made before it was known whom for.
func TestContextMadeAhead(t *testing.T) {
	t.Parallel()
	for language, code := range map[string]string{
		"python":     "import os; print(os.environ['A'], os.environ['B'], os.environ.get('C'))",
		"javascript": "console.log(process.env.A, process.env.B, process.env.C ?? 'None')",
		"bash":       "echo \"$A $B ${C-None}\"",
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			h := newEvalHost(t, interpreterOf[language])
			made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-" + language, Language: language, Env: map[string]string{"A": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			run := func(env map[string]string) string {
				t.Helper()
				r := gather(t, h.eval(&guestapi.ExecuteRequest{Language: language, ContextID: made.ID, Create: true, Code: code, Env: env}), nil)
				return r.stdout
			}
			same(t, "first run", run(map[string]string{"A": "1", "B": "it's"}), "1 it's None\n")
			// From then on it is as that run found it.
			same(t, "second run", run(map[string]string{"A": "2", "C": "3"}), "1 it's None\n")
			contexts, err := h.Contexts(t.Context())
			if err != nil || len(contexts) != 1 || contexts[0].PID != made.PID {
				t.Errorf("contexts %+v, %v; want the one that was made, process %d", contexts, err, made.PID)
			}
		})
	}
}

// TestContextPrepared imports modules before the first run, and not after it.
func TestContextPrepared(t *testing.T) {
	t.Parallel()
	for language, c := range map[string]struct{ module, code, want string }{
		"python":     {"decimal", "import sys; print('decimal' in sys.modules, 'decimal' in globals())", "True False\n"},
		"javascript": {"zlib", "console.log(1)", "1\n"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			h := newEvalHost(t, interpreterOf[language])
			made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-" + language, Language: language})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.PrepareContext(t.Context(), made.ID, []string{c.module, "no_such_module"}); err != nil {
				t.Fatal(err)
			}
			r := gather(t, h.eval(&guestapi.ExecuteRequest{Language: language, ContextID: made.ID, Create: true, Code: c.code, Env: map[string]string{"A": "1"}}), nil)
			same(t, "run", r.stdout, c.want)
			same(t, "notices", r.notices, "")
			if err := h.PrepareContext(t.Context(), made.ID, nil); !errors.Is(err, sandbox.Conflict) {
				t.Errorf("after a run: %v, want a conflict", err)
			}
		})
	}
	h := newEvalHost(t, "bash")
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.PrepareContext(t.Context(), made.ID, nil); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("of a shell: %v, want a conflict", err)
	}
	if err := h.PrepareContext(t.Context(), "none", nil); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("of none: %v, want that it is not found", err)
	}
}

// TestContextMadeAheadElsewhere has one that turns out to start elsewhere.
func TestContextMadeAheadElsewhere(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-python", Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := gather(t, h.eval(&guestapi.ExecuteRequest{
			Language: "python", ContextID: made.ID, Create: true, Cwd: "/usr", Env: map[string]string{"A": "1"},
			Code: "import os; print(os.getcwd(), os.environ['A'])",
		}), nil)
		same(t, "run", r.stdout, "/usr 1\n")
		same(t, "notices", r.notices, "")
	}
	if list, err := h.Contexts(t.Context()); err != nil || len(list) != 1 || list[0].PID != made.PID || list[0].Cwd != "/usr" {
		t.Errorf("contexts %+v, %v; want the one that was made, process %d, in /usr", list, err, made.PID)
	}
}

// TestContextMoves compares an interpreter that was made ahead, with the variables
// of the server's other protocols, with one that starts where it is used.
func TestContextMoves(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	h := newEvalHost(t, "python3")
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-python", Language: "python", Cwd: "/tmp", Env: map[string]string{
		"PYTHONPATH": "/tmp", "PYTHONUSERBASE": base, "NODE_PATH": "/tmp", "A": "old", "B": "old",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.PrepareContext(t.Context(), made.ID, []string{"decimal"}); err != nil {
		t.Fatal(err)
	}
	const code = `
import os, sys, site, subprocess
environ = {k: v for k, v in os.environ.items() if k not in ("GLOVEBOX_PROCESS",)}
print(os.getcwd(), sys.path, site.getuserbase(), site.getusersitepackages(), sorted(environ.items()))
print(subprocess.run([sys.executable, "-c", "import os, site; print(os.getcwd(), site.getuserbase(), os.environ.get('PYTHONPATH'), os.environ.get('B'))"], capture_output=True, text=True).stdout)
`
	run := func(id string) string {
		t.Helper()
		r := gather(t, h.eval(&guestapi.ExecuteRequest{
			Language: "python", ContextID: id, Create: true, Cwd: "/usr", Code: code, Env: map[string]string{"A": "new", "PYTHONPATH": "/var"},
		}), nil)
		same(t, "notices", r.notices, "")
		return r.stdout
	}
	moved, started := run(made.ID), run("another")
	same(t, "an interpreter that moved", moved, started)
	if !strings.HasPrefix(moved, "/usr ['', '/var', ") || strings.Contains(moved, base) || strings.Contains(moved, "'/tmp'") {
		t.Errorf("both have %s", moved)
	}
	list, err := h.Contexts(t.Context())
	if err != nil || len(list) != 2 || list[0].PID != made.PID {
		t.Errorf("contexts %+v, %v; want the one that was made, process %d", list, err, made.PID)
	}
}

// TestContextMovesNowhere has one whose new directory does not exist: the run is
// refused as without an interpreter.
func TestContextMovesNowhere(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-python", Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{made.ID, "another"} {
		_, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{Language: "python", ContextID: id, Create: true, Cwd: "/nowhere", Code: "1"}, nil)
		guesttest.WantKind(t, err, sandbox.NotFound, "/nowhere")
	}
}
