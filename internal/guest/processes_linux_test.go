package guest

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func TestRunEcho(t *testing.T) {
	h := newHost(t)
	r := h.run("echo out; echo err >&2; exit 3")
	if r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if r.end.ExitCode != 3 || !r.end.Exited || r.end.Status != "exit status 3" {
		t.Errorf("end is %+v", r.end)
	}
	_ = strings.TrimSpace
	_ = guestapi.SIGKILL
}
