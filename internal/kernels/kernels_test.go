package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// required reports whether GLOVEBOX_REQUIRE has a word: then what is missing
// fails a test that else would skip.
func required(word string) bool {
	return slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), word)
}

// interpreters returns the programs to test with: those in the variable, a
// list as PATH is, or those of these names that are there. The same program
// under two names is tested once. Who requires interpreters must name them.
func interpreters(t *testing.T, variable string, names ...string) []string {
	t.Helper()
	var found []string
	add := func(program string) {
		if real, err := filepath.EvalSymlinks(program); err == nil {
			program = real
		}
		if !slices.Contains(found, program) {
			found = append(found, program)
		}
	}
	if list := os.Getenv(variable); list != "" {
		for _, p := range filepath.SplitList(list) {
			add(p)
		}
		return found
	}
	if required("interpreters") {
		t.Fatalf("interpreters are required, and %s names none", variable)
	}
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			add(p)
		}
	}
	if len(found) == 0 {
		t.Skipf("none of %v is here", names)
	}
	return found
}

func run(t *testing.T, dir, env, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	t.Logf("%s", out)
}

// TestPython runs the tests that are written in Python, with each Python that
// GLOVEBOX_PYTHONS names, or the one on the PATH and Debian's, which has
// packages to test rich results with.
func TestPython(t *testing.T) {
	for _, python := range interpreters(t, "GLOVEBOX_PYTHONS", "python3", "/usr/bin/python3") {
		t.Run(filepath.Base(python), func(t *testing.T) {
			t.Parallel()
			run(t, "python", "PYTHONDONTWRITEBYTECODE=1", python, "-m", "unittest", "test_kernel", "test_rich", "test_syntax", "test_shell", "test_backend", "test_hostile", "test_ipython")
		})
	}
}

// javascriptTests are the files of tests that are written in JavaScript.
func javascriptTests(t *testing.T) []string {
	t.Helper()
	tests, err := filepath.Glob("javascript/*.test.js")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for i := range tests {
		tests[i] = filepath.Base(tests[i])
	}
	return tests
}

// TestNode runs the tests that are written in JavaScript, with each Node that
// GLOVEBOX_NODES names, or the one on the PATH.
func TestNode(t *testing.T) {
	for _, node := range interpreters(t, "GLOVEBOX_NODES", "node") {
		t.Run(filepath.Base(node), func(t *testing.T) {
			t.Parallel()
			run(t, "javascript", "GLOVEBOX_TEST_BUN=", node, append([]string{"--test"}, javascriptTests(t)...)...)
		})
	}
}

// TestBun runs the same tests of a kernel that GLOVEBOX_BUN runs.
func TestBun(t *testing.T) {
	bun := interpreters(t, "GLOVEBOX_BUN", "bun")[0]
	node := interpreters(t, "GLOVEBOX_NODES", "node")[0]
	run(t, "javascript", "GLOVEBOX_TEST_BUN="+bun, node, append([]string{"--test"}, javascriptTests(t)...)...)
}
