//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		parse  func([]byte, int) result
		text   string
		status int
		want   result
	}{
		"python passes": {parseCPython, "Ran 3 tests in 0.1s\n\nOK (skipped=1)\n", 0, result{Result: pass, Tests: 3, Skipped: 1}},
		"python fails": {
			parseCPython, "ERROR: test_x (test.test_os.A.test_x)\nFAIL: test_y (test.test_os.B)\nRan 3 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=1)\n", 2,
			result{Result: fail, Tests: 3, Skipped: 1, Failed: []string{"test_os.A.test_x", "test_os.B.test_y"}},
		},
		"python skips a module": {parseCPython, "test_ioctl skipped -- Unable to open /dev/tty\n", 0, result{Result: skip}},
		"python breaks off":     {parseCPython, "Ran 3 tests in 0.1s\n\nOK\n", 139, result{Result: fail, Tests: 3}},
		"go": {
			parseGo, "--- PASS: TestA (0.0s)\n    --- FAIL: TestB/sub (0.0s)\n--- FAIL: TestB (0.0s)\n--- SKIP: TestC (0.0s)\n", 1,
			result{Result: fail, Tests: 3, Skipped: 1, Failed: []string{"TestB"}},
		},
		"git": {
			parseTAP, "ok 1 - a\nnot ok 2 - b\nok 3 # skip c (missing X)\nnot ok 4 - d # TO" + "DO known breakage\n1..4\n", 1,
			result{Result: fail, Tests: 4, Skipped: 1, Failed: []string{"2 b"}},
		},
		"git skips a script": {parseTAP, "1..0 # SKIP no daemon\n", 0, result{Result: skip}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(test.want, test.parse([]byte(test.text), test.status)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestExec(t *testing.T) {
	run := func(script string, limit time.Duration) (string, int) {
		out, status, err := program{argv: []string{"/bin/sh", "-c", script}, dir: t.TempDir(), env: []string{"A=b"}}.exec(limit)
		if err != nil {
			t.Fatal(err)
		}
		return string(out), status
	}
	if out, status := run("echo $A; echo err >&2; exit 3", time.Minute); out != "b\nerr\n" || status != 3 {
		t.Errorf("output %q and status %d", out, status)
	}
	if _, status := run("kill -9 $$", time.Minute); status != 137 {
		t.Errorf("status %d of a program that was killed, want 137", status)
	}
	// What goes on for ever ends, and what it started with it.
	if out, status := run("sleep 1000 & echo on; wait", time.Second); out != "on\n" || status != -1 {
		t.Errorf("output %q and status %d of a program that does not end", out, status)
	}
}

// TestNode has a node that is a shell, and tests that are scripts.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/node":                     "#!/bin/sh\n[ \"$1\" != --yes ] || shift\nexec /bin/sh \"$1\"\n",
		"test/parallel/test-os.js":     "exit 0",
		"test/parallel/test-os-a.js":   ": '\n// Flags: --yes\n'\nexit 0",
		"test/parallel/test-os-b.js":   "exit 1",
		"test/parallel/test-os-c.js":   "echo '1..0 # Skipped: not here'",
		"test/parallel/test-osiris.js": "exit 1",
	} {
		path := filepath.Join(dir, "node", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, _, err := node(dir)("os", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r.Seconds = 0
	if d := cmp.Diff(result{Module: "os", Result: fail, Tests: 4, Skipped: 1, Failed: []string{"test-os-b"}}, r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if flags, err := nodeFlags(filepath.Join(dir, "node/bin/node")); err != nil || len(flags) != 0 {
		t.Errorf("flags %q, %v", flags, err)
	}
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	doc := file("doc.md", "# Before\n\n"+tableBegin+"old\n"+tableEnd+"\nAfter\n")
	args := []string{
		"table", "-doc", doc, "-facts", file("facts", "On some day.\n"),
		"-inside", file("inside", `{"suite":"git","module":"t1","result":"fail","tests":3,"skipped":1,"seconds":2.04,"failed":["1 a","2 b|c"]}
{"suite":"git","module":"t2","result":"pass","tests":3,"seconds":1}
`),
		"-host", file("host", `{"suite":"git","module":"t1","result":"fail","tests":3,"seconds":1,"failed":["1 a"]}
`),
	}
	want := "# Before\n\n" + tableBegin + `
On some day.

| suite | modules | pass in a sandbox | pass on the host | seconds in a sandbox | seconds on the host |
|---|---|---|---|---|---|
| git | 2 | 1 | 0 | 3 | 1 |

### git

| module | in a sandbox | s | on the host | s | fails in the sandbox only |
|---|---|---|---|---|---|
| t1 | fail, 2 tests, 1 skipped, 2 failed | 2.0 | fail, 3 tests, 1 failed | 1.0 | ` + "`2 b\\|c`" + ` |
| t2 | pass, 3 tests | 1.0 | not run | 0.0 |  |

` + tableEnd + "\nAfter\n"
	for range 2 { // a second time changes nothing
		if err := command(args); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	}
	file("doc.md", "no table")
	if err := command(args); err == nil || !strings.Contains(err.Error(), "no place for the table") {
		t.Errorf("a document without a table: %v", err)
	}
}
