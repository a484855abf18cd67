package drivertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildGuest builds the guest's program and returns its path in a temporary
// directory of the test. It takes one or two seconds.
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
