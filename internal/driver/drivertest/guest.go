package drivertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildGuest builds the guest's program into a directory of the test and
// returns its path, for tests of what uses it as a file. It takes a second or
// two.
func BuildGuest(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "glovebox-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path,
		"github.com/glovebox-dev/glovebox/cmd/glovebox-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	return path
}
