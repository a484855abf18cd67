//go:build linux && !nogvisor

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
)

// TestGvisorPrototypes has an image whose module takes half a second to import. The pool
// imports it once: the module's own number is the same in all sandboxes. Their random
// numbers and generations differ. No prototype is left of a server that was killed,
// or that ended.
func TestGvisorPrototypes(t *testing.T) {
	s := startSoak(t, 0, "pool: {size: 2}\nsandbox: {default: {memory: 256MiB, disk: 64MiB}}\n", "alice")
	s.kill()
	archive := filepath.Join(t.TempDir(), "slow.tar")
	imagetest.Save(t, archive, "slow:1", imagetest.Image(t, imagetest.Config{Labels: map[string]string{
		"sandbox.runner": "true", "sandbox.language": "python", "glovebox.warm-imports": "slow",
	}}, imagetest.Debian(t, "../../.cache/images"), imagetest.Layer(t, imagetest.File{
		Name: "usr/lib/python3/dist-packages/slow.py", Content: "import os, time\ntime.sleep(0.5)\nnumber = os.urandom(8).hex()\n",
	})))
	if out, err := exec.CommandContext(t.Context(), s.binary, "images", "load", "--config", s.config, archive).CombinedOutput(); err != nil {
		t.Fatalf("images load: %v\n%s", err, out)
	}
	snapshots := func() []string {
		entries, _ := os.ReadDir(filepath.Join(s.dir, "gvisor", "snapshots"))
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	const show = "import sys\nok = 'slow' in sys.modules\nimport random, slow\n" +
		"print(ok, slow.number, random.random(), open('/run/glovebox/generation').read().split()[1])"
	// alike runs show in new sandboxes until that many had the module with the same number,
	// and returns the lines of these.
	alike := func(count int) [][]string {
		t.Helper()
		lines := map[string][][]string{}                                                         // by the number of the module
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(1500 * time.Millisecond) { // the pool works meanwhile
			r, err := s.toolAs(t.Context(), "alice", "run_code", map[string]any{"code": show, "image": "slow:1"})
			if err != nil {
				t.Fatal(err)
			}
			s.ids[r.SandboxID] = true
			if _, err := s.toolAs(t.Context(), "alice", "stop_sandbox", map[string]any{"sandbox_id": r.SandboxID}); err != nil {
				t.Fatal(err)
			}
			if words := strings.Fields(r.Stdout); r.Verdict.Code == "ok" && len(words) == 4 && words[0] == "True" {
				of := append(lines[words[1]], words)
				if lines[words[1]] = of; len(of) == count {
					return of
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("in two minutes no %d sandboxes had the same module: %q; the last run: %+v", count, lines, r)
			}
		}
	}
	s.start()
	lines := alike(3)
	for i, name := range []string{"random number", "generation"} {
		var values []string
		for _, l := range lines {
			values = append(values, l[i+2])
		}
		slices.Sort(values)
		if n := len(slices.Compact(values)); n != 3 {
			t.Errorf("the %s has %d values in 3 sandboxes: %q", name, n, lines)
		}
	}
	old := snapshots()
	if len(old) == 0 {
		t.Error("there is no snapshot")
	}
	s.kill()
	s.start()
	if again := alike(2); again[0][1] == lines[0][1] {
		t.Error("the next server used the prototype of a server that was killed")
	}
	for deadline := time.Now().Add(time.Minute); slices.ContainsFunc(snapshots(), func(id string) bool { return slices.Contains(old, id) }); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %q there are %q a minute later", old, snapshots())
		}
	}
	s.end()
	if now := snapshots(); len(now) != 0 {
		t.Errorf("the snapshots %q are left", now)
	}
}
