//go:build linux && !nogvisor

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGvisorRepository is the transcript of an agent that works on a repository with
// 2,000 files: it searches, edits, tests, serves, and hands back a patch.
func TestGvisorRepository(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	repo := filepath.Join(dir, "repo")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(repo, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1993 {
		write(fmt.Sprintf("lib/m%02d/f%04d.py", i%50, i), fmt.Sprintf("# Module %d\n\ndef value():\n    return %d\n", i, i), 0o644)
	}
	write("total.py", "def total(values):\n    \"\"\"Return the sum.\"\"\"\n    return sum(values) + 1  # wrong\n", 0o644)
	write("test_total.py", "import unittest\nfrom total import total\n\nclass Test(unittest.TestCase):\n    def test(self):\n        self.assertEqual(total([1, 2]), 3)\n", 0o644)
	write("check.sh", "#!/bin/sh\nexec python3 -m unittest -q\n", 0o755)
	write(".gitignore", "__pycache__/\n*.log\n", 0o644)
	write("logo.bin", "\x00\x01old", 0o644)
	write("old.txt", "to be removed\n", 0o644)
	write("README.md", "# Totals\n", 0o644)
	host := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	host("init", "-q")
	host("add", "-A")
	host("commit", "-q", "-m", "first")
	host("gc", "-q")

	s := startTools(t, binary, dir, []string{"HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "GLOVEBOX_DRIVER=gvisor"})
	// call makes a call and checks the beginning or a part of its result.
	call := func(line string, want ...string) string {
		t.Helper()
		got, err := s.run(line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, got)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", line, w, got)
			}
		}
		return got
	}
	call(`copy_in {"host_path": "/home/ada/repo", "path": "/data/repo"}`, "copied ")
	call(`get_changes {"sandbox_id": "sbx_…", "path": "repo"}`, "[in /data/repo: 0 created, 0 modified, 0 removed]")
	call(`search_files {"sandbox_id": "sbx_…", "path": "repo", "pattern": "def total\\(", "glob": "**/*.py"}`, "/data/repo/total.py:1: def total(values):", "[1 matching line in 1 of 1995 files")
	call(`list_files {"sandbox_id": "sbx_…", "path": "repo", "glob": "test_*.py"}`, "/data/repo/test_total.py")
	if got, err := s.run(`run_command {"sandbox_id": "sbx_…", "cwd": "/data/repo", "command": "./check.sh"}`); err == nil && !strings.Contains(got, "failed") {
		t.Errorf("the test passes too early:\n%s", got)
	}
	call(`edit_file {"sandbox_id": "sbx_…", "path": "repo/total.py", "old_string": "sum(values) + 1  # wrong", "new_string": "sum(values)"}`, "1 replacement")
	call(`run_command {"sandbox_id": "sbx_…", "cwd": "/data/repo", "command": "./check.sh && echo x >debug.log"}`, "OK")
	call(`run_command {"sandbox_id": "sbx_…", "cwd": "/data/repo", "command": "python3 -m http.server 8000", "service": true, "name": "web", "ready": "port:8000"}`, `service "web": running`)
	call(`run_code {"sandbox_id": "sbx_…", "language": "python", "code": "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/total.py').read().decode())"}`, "return sum(values)\n")
	last := call(`run_command {"sandbox_id": "sbx_…", "cwd": "/data/repo", "command": "rm old.txt; printf 'a\\000new' >logo.bin; git mv README.md readme.txt 2>/dev/null || mv README.md readme.txt; chmod +x total.py"}`, "+repo/readme.txt", "-repo/old.txt", "~repo/logo.bin")
	run := regexp.MustCompile(`run_[a-z0-9]{26}`).FindString(last)
	call(`get_changes {"sandbox_id": "sbx_…", "path": "repo", "since": "`+run+`"}`, "new mode 100755", "Binary files a/logo.bin and b/logo.bin differ", "1 created, 2 modified, 2 removed]")
	text := call(`get_changes {"sandbox_id": "sbx_…", "path": "repo/total.py"}`, "-    return sum(values) + 1  # wrong\n+    return sum(values)\n", "[in /data/repo/total.py: 0 created, 1 modified, 0 removed]")
	whole := call(`get_changes {"sandbox_id": "sbx_…", "path": "repo"}`, "1 created, 2 modified, 2 removed]")
	if strings.Contains(whole, "debug.log") || strings.Contains(whole, "__pycache__") {
		t.Errorf("ignored files count:\n%s", whole)
	}
	// What a model hands on is a patch by itself.
	patch, _, _ := strings.Cut(text, "[in /data")
	if err := os.WriteFile(filepath.Join(dir, "change.patch"), []byte(patch), 0o644); err != nil {
		t.Fatal(err)
	}
	host("apply", filepath.Join(dir, "change.patch"))
	if got := host("diff", "--stat", "HEAD"); !strings.Contains(got, "total.py") || !strings.Contains(got, "1 file changed") {
		t.Errorf("after git apply:\n%s", got)
	}
}
