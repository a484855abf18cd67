package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestWarmImports has a sandbox of the pool whose first run finds imported what
// the runner names; one that is made on demand imports nothing.
func TestWarmImports(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		if strings.Contains(os.Getenv("GLOVEBOX_REQUIRE"), "pandas") {
			t.Fatalf("GLOVEBOX_REQUIRE has pandas, and so Python: %v", err)
		}
		t.Skip("python3 is not here")
	}
	const runner = `language: python
extension: py
kernel: python
warm: [decimal, no_such_module]
variants: [{command: [python3, "{file}"]}]
`
	o := testOptions(t, t.TempDir())
	o.Config.Languages.Runners, o.Pool = t.TempDir(), true
	if err := os.WriteFile(filepath.Join(o.Config.Languages.Runners, "python.yaml"), []byte(runner), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, o)
	if err := s.WaitWarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := o
	other.Pool = false
	told := slices.ContainsFunc(Doctor(t.Context(), other), func(c Check) bool {
		return c.Name == "pool" && c.Status == CheckOK && strings.HasPrefix(c.Detail, "1 ")
	})
	if !told {
		t.Error("the doctor does not tell of the warm sandbox")
	}
	warm, err := s.Warm(t.Context())
	if err != nil || len(warm) != 1 {
		t.Errorf("warm %v, %v; want one", warm, err)
	}
	for _, c := range []struct {
		workspace string // a sandbox with one is not of the pool
		want      string
	}{{"", "True"}, {"w", "False"}} {
		run, err := s.Engine.Start(t.Context(), sandbox.Local, sandbox.RunRequest{
			Code: "import sys; print('decimal' in sys.modules)", Context: sandbox.DefaultContext,
			New: sandbox.CreateRequest{Workspace: c.workspace},
		})
		if err == nil {
			run, err = s.Engine.Wait(t.Context(), sandbox.Local, run.ID)
		}
		if err != nil || run.Verdict.Code != sandbox.OK {
			t.Fatalf("%+v, %v", run.Verdict, err)
		}
		out, err := s.Engine.Output(t.Context(), sandbox.Local, run.ID, 100)
		if err != nil || strings.TrimSpace(out.Stdout) != c.want {
			t.Errorf("workspace %q: imported: %q, %v; want %s", c.workspace, out.Stdout, err, c.want)
		}
	}
}

// TestWarmIsNobodys lists what is made ahead until somebody has it, whether that
// lives on or not.
func TestWarmIsNobodys(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Pool = true
	s := mustOpen(t, o)
	if err := s.WaitWarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A command of another process, which looks from outside.
	o.Pool, o.Passive = false, true
	outside := mustOpen(t, o)
	look := func() []string {
		t.Helper()
		warm, err := outside.Warm(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if list, err := outside.Sandboxes(t.Context()); err != nil || slices.ContainsFunc(list, func(b operator.Sandbox) bool { return slices.Contains(warm, b.ID) }) {
			t.Errorf("%v, %v, mixed with warm ones %v", list, err, warm)
		}
		return warm
	}
	before := look()
	if len(before) != 1 {
		t.Fatalf("warm %v, want one", before)
	}
	box, err := s.Engine.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if st := s.warmer.Stats(); st.Hits != 1 {
		t.Fatalf("%+v, want a hit", st)
	}
	if warm := look(); slices.Contains(warm, before[0]) {
		t.Errorf("warm %v has the one that was claimed, %s", warm, before[0])
	}
	if err := s.Engine.Stop(t.Context(), sandbox.Local, box.ID); err != nil {
		t.Fatal(err)
	}
	if warm := look(); slices.Contains(warm, before[0]) {
		t.Errorf("warm %v has the one that is gone, %s", warm, before[0])
	}
}

// TestDoctorTellsOfThePool also where there is none.
func TestDoctorTellsOfThePool(t *testing.T) {
	for size, want := range map[int]string{0: "pool.size is 0", 5: "0 made ahead by servers that run; each keeps up to 5"} {
		o := testOptions(t, t.TempDir())
		o.Config.Pool.Size = size
		if checks := Doctor(t.Context(), o); !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == "pool" && strings.Contains(c.Detail, want) }) {
			t.Errorf("size %d: %+v", size, checks)
		}
	}
}
