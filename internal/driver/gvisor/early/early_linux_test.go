package early

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// umounter runs this test's own program as the helper that unmounts dir, and
// returns its exit status and what it wrote. gate is its descriptor 3.
func umounter(t *testing.T, gate *os.File, args ...string) (int, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Args = append([]string{"/proc/self/exe"}, args...)
	cmd.ExtraFiles = []*os.File{gate}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// gate returns the end of a pipe that text can be read from.
func gate(t *testing.T, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func TestUmounter(t *testing.T) {
	dir := t.TempDir() // not a mount point, so there is nothing to unmount
	for _, tt := range []struct {
		name, gate string
		args       []string
		want       int
	}{
		{"asked", "x", []string{"umount", "--sync-fd=3", dir}, 1},
		{"not asked", "", []string{"umount", "--sync-fd=3", dir}, 1},
		{"other descriptor", "x", []string{"umount", "--sync-fd=7", dir}, 1},
		{"standard stream", "x", []string{"umount", "--sync-fd=0", dir}, 2},
		{"other flag", "x", []string{"umount", "--fd=3", dir}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, out := umounter(t, gate(t, tt.gate), tt.args...); got != tt.want || out != "" {
				t.Errorf("exit status %d, output %q; want %d and none", got, out, tt.want)
			}
		})
	}
}

// TestOthersGoOn runs this program by arguments that are not the helper's: it
// is a test's program then, and says so.
func TestOthersGoOn(t *testing.T) {
	status, out := umounter(t, gate(t, ""), "-test.run=^$")
	if status != 0 || !strings.Contains(out, "PASS") {
		t.Errorf("exit status %d, output %q", status, out)
	}
}
