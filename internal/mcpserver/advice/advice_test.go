package advice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHintsExist compares the table with the list of all hints.
func TestHintsExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range toolHints {
		if !strings.Contains(string(page), "| "+h.hint+" |\n") {
			t.Errorf("no error or verdict has the hint %q", h.hint)
		}
		if h.say == h.hint || For(h.hint) != h.say {
			t.Errorf("%q: %q", h.hint, For(h.hint))
		}
	}
}

func TestFor(t *testing.T) {
	for hint, want := range map[string]string{
		"make a sandbox with more memory, or process the data in smaller pieces":                                              "make a sandbox with create_sandbox and a larger memory_mb, or process the data in smaller pieces",
		`the sandbox's network does not allow a.example: if it needs that, make a sandbox with network "b.example,a.example"`: `the sandbox's network does not allow a.example: if it needs that, make a sandbox with create_sandbox and network "b.example,a.example"`,
		`the sandbox has no network: if it needs one, make a sandbox whose network names the hosts, like "example.com"`:       `the sandbox has no network: if it needs one, make a sandbox with create_sandbox and a network that names the hosts, like "example.com"`,
		"try again": "try again",
		"":          "",
	} {
		if got := For(hint); got != want {
			t.Errorf("%q: %q, want %q", hint, got, want)
		}
	}
}

func TestError(t *testing.T) {
	plain := errors.New("x")
	if got := Error(plain); got != plain {
		t.Errorf("%v became %v", plain, got)
	}
	err := Error(sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "path: x"), "list the directory to see what is there"))
	if sandbox.HintOf(err) != "check the path with list_files" || !errors.Is(err, sandbox.NotFound) || err.Error() != "path: x" {
		t.Errorf("%v, hint %q", err, sandbox.HintOf(err))
	}
}
