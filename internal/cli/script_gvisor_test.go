//go:build linux && !nogvisor

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestScriptsGvisor runs the same scripts on the embedded sandbox, with the
// real program: the one that GLOVEBOX_TEST_BINARY names, or one that it builds.
func TestScriptsGvisor(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	runScripts(t, "gvisor", binary)
}

// TestGvisorWithoutEmbeddedGuest shows that a program from go install, which
// carries no guest, is its own.
func TestGvisorWithoutEmbeddedGuest(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here; the test runs where there is one")
	}
	binary := build(t)
	needGvisor(t, binary)
	run := exec.CommandContext(t.Context(), binary, "run", "--driver", "gvisor", "--state-dir", t.TempDir(), "-l", "sh", "-c", "echo $((6*7))")
	if out, err := run.CombinedOutput(); err != nil || string(out) != "42\n" {
		t.Errorf("run: %q, %v; want 42", out, err)
	}
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "glovebox")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/glovebox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// needGvisor skips the test, or fails it where gvisor is required, if the
// embedded sandbox does not work on this machine.
func needGvisor(t *testing.T, binary string) {
	t.Helper()
	doctor := exec.CommandContext(t.Context(), binary, "doctor", "--driver", "gvisor", "--state-dir", t.TempDir())
	out, err := doctor.CombinedOutput()
	if err == nil {
		return
	}
	if required("gvisor") {
		t.Fatalf("GLOVEBOX_REQUIRE has gvisor, which does not work here: %v\n%s", err, out)
	}
	t.Skipf("gvisor does not work here: %v\n%s", err, out)
}
