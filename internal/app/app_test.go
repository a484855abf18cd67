package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func testOptions(t testing.TB, dir string) Options {
	t.Helper()
	c := config.Default(func(string) string { return "" })
	c.Driver, c.StateDir = "fake", dir
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return Options{Config: c, TestDrivers: fakeDrivers()}
}

func fakeDrivers() map[string]Maker {
	return map[string]Maker{"fake": func(o DriverOptions) (driver.Driver, error) {
		return fake.New(fake.Options{Dir: filepath.Join(o.StateDir, "fake"), Pretend: sandbox.ControlNames()})
	}}
}

func mustOpen(t *testing.T, o Options) *System {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the fake driver needs Linux")
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	tests := map[string]struct {
		change func(*Options)
		kind   sandbox.Kind
		want   string
	}{
		"unknown driver": {func(o *Options) { o.Config.Driver = "frobnicator" }, sandbox.Invalid, "frobnicator"},
		"a driver that fails": {func(o *Options) {
			o.TestDrivers["fake"] = func(DriverOptions) (driver.Driver, error) { return nil, driver.ErrUnavailable }
		}, sandbox.Unavailable, "make driver fake"},
		"state directory": {func(o *Options) { o.Config.StateDir = filepath.Join(file, "x") }, sandbox.Unavailable, "state directory"},
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, t.TempDir())
			test.change(&o)
			s, err := Open(t.Context(), o)
			if err == nil {
				t.Fatal(errors.Join(errors.New("Open succeeded"), s.Close(t.Context())))
			}
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v of kind %s; want one of kind %s with %q", err, sandbox.KindOf(err), test.kind, test.want)
			}
		})
	}
}

// TestLogSpace: run.log_space bounds the stored output of all runs.
func TestLogSpace(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(t, dir)
	o.Config.Run.LogSize, o.Config.Run.LogSpace = 8<<20, 16<<20
	s := mustOpen(t, o)
	box, err := s.Engine.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		last, err := s.Engine.Start(t.Context(), sandbox.Local, sandbox.RunRequest{SandboxID: box.ID, Argv: []string{"head", "-c", "6000000", "/dev/zero"}})
		if err == nil {
			last, err = s.Engine.Wait(t.Context(), sandbox.Local, last.ID)
		}
		if err != nil || last.Verdict.Code != sandbox.OK {
			t.Fatalf("%+v, %v", last, err)
		}
	}
	stored := func() (n int64) {
		err := filepath.WalkDir(filepath.Join(dir, "logs"), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				var fi fs.FileInfo
				if fi, err = e.Info(); err == nil {
					n += fi.Size()
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // an earlier output, removed meanwhile
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := stored()
	for began := time.Now(); (n == 0 || n > 16<<20) && time.Since(began) < 10*time.Second; n = stored() {
		time.Sleep(10 * time.Millisecond)
	}
	if n == 0 || n > 16<<20 {
		t.Errorf("%d bytes of 24,000,000 are stored, want some, and at most 16 MiB", n)
	}
}

func TestTestDriversAreNotInTheProgram(t *testing.T) {
	for _, name := range DriverNames() {
		if name == "fake" {
			t.Error("the program has the fake driver")
		}
	}
	if _, _, err := (Options{}).candidates("fake"); err == nil {
		t.Error("the fake driver can be chosen without a test")
	}
}

func TestFirstToken(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, testOptions(t, dir))
	one, err := s.FirstToken(t.Context(), false)
	if err != nil || one == "" {
		t.Fatalf("first token %q, %v", one, err)
	}
	if again, err := s.FirstToken(t.Context(), false); err != nil || again != "" {
		t.Errorf("a second start: token %q, %v; want none", again, err)
	}
	two, err := s.FirstToken(t.Context(), true)
	if err != nil || two == "" || two == one {
		t.Errorf("replaced: token %q, %v; want another than %q", two, err, one)
	}
	if _, err := s.auth.Verify(t.Context(), one); !errors.Is(err, sandbox.Unauthenticated) {
		t.Errorf("the replaced token: %v; want unauthenticated", err)
	}
	if _, err := s.auth.Verify(t.Context(), two); err != nil {
		t.Errorf("the new token: %v", err)
	}

	o := testOptions(t, t.TempDir())
	o.Config.Server.Token = strings.Repeat("s", 32)
	static := mustOpen(t, o)
	if text, err := static.FirstToken(t.Context(), false); err != nil || text != "" {
		t.Errorf("with a token from the environment: %q, %v; want none made", text, err)
	}
}

func TestOperatorSeesEverybodysSandboxes(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	for _, p := range []sandbox.Principal{sandbox.Local, "token:other"} {
		if _, err := s.Engine.Create(t.Context(), p, sandbox.CreateRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Sandboxes(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%d sandboxes, %v; want 2", len(list), err)
	}
	for _, box := range list {
		if err := s.StopSandbox(t.Context(), box.ID); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.Sandboxes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d sandboxes after stopping all, %v", len(list), err)
	}
	if err := s.StopSandbox(t.Context(), sandbox.NewID()); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("stop of one that is not there: %v; want not found", err)
	}
}

func TestServeStdioEndsWithItsContext(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	in, _ := io.Pipe() // a client that never says anything
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(ctx, in, io.Discard) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ServeStdio: %v; want canceled", err)
	}
}

func TestLanguageOf(t *testing.T) {
	for file, want := range map[string]string{
		"a.py": "python", "dir/b.js": "javascript", "C.SH": "bash", "x.bash": "bash", "x.ts": "typescript",
		"Makefile": "", "x.": "", "x.unknown": "",
	} {
		got, known, err := LanguageOf(config.Languages{}, file, "print(1)")
		if got != want || err != nil || (len(known) > 0) != (want == "") {
			t.Errorf("LanguageOf(%q) = %q, %q, %v; want %q", file, got, known, err, want)
		}
	}
}
