package contexts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// needIPython skips the test if Debian's Python has no IPython, and fails it if
// GLOVEBOX_REQUIRE names ipython.
func needIPython(t *testing.T) {
	t.Helper()
	if err := exec.Command("/usr/bin/python3", "-c", "import IPython").Run(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "ipython") {
			t.Fatalf("ipython is required and missing: %v", err)
		}
		t.Skipf("no IPython: %v", err)
	}
}

func TestContextIPython(t *testing.T) {
	t.Parallel()
	needIPython(t)
	h := newEvalHost(t, "python3")
	h.ends("ipython", "x = 41\nget_ipython().run_line_magic('alias', 'hello echo hello')", guestapi.EndOK)
	r := h.ends("ipython", "%hello there\ndisplay(x)\nx + 1", guestapi.EndOK)
	same(t, "value", r.main(), "42")
	same(t, "stdout", r.stdout, "hello there\n")
	same(t, "count", r.count, 2)
	same(t, "results", len(r.results), 2)
	r = h.ends("ipython", "1 // 0", guestapi.EndError)
	if r.err == nil || r.err.Name != "ZeroDivisionError" || r.err.Line != 1 {
		t.Errorf("error is %+v", r.err)
	}
	r = gather(t, h.eval(&guestapi.ExecuteRequest{Language: "ipython", Code: "while True: pass", TimeoutMillis: 1000}), nil)
	same(t, "status of an endless run", r.end.Status, guestapi.EndInterrupted)
	same(t, "a variable", h.ends("ipython", "x", guestapi.EndOK).main(), "41")
	// Python's own kernel has other variables.
	same(t, "Python's", h.ends("python", "'x' in globals()", guestapi.EndOK).main(), "False")
	list, err := h.Contexts(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "default-ipython" || list[0].Language != "ipython" || list[1].Language != "python" {
		t.Errorf("contexts are %+v, %v", list, err)
	}
}

// A Python without IPython runs nothing in its place.
func TestContextWithoutIPython(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	dir := guesttest.UserDir(t, "")
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{
			Create: true, ContextID: "c", Language: "ipython", Code: "1", Env: map[string]string{"PATH": dir},
		}, nil)
		guesttest.WantKind(t, err, sandbox.Unsupported, "the kernel ipython is not in this sandbox: No module named 'IPython'; Debian's package is python3-ipython")
	}
}
