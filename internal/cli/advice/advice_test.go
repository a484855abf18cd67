package advice

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		v    sandbox.Verdict
		want string
	}{
		{sandbox.Verdict{Code: sandbox.OutOfMemory, NextStep: "make a sandbox with more memory"}, "allow more with --memory, like --memory 1GiB, or process the data in smaller pieces"},
		{sandbox.Verdict{Code: sandbox.Failed, NextStep: `the sandbox's network does not allow a.example: if it needs that, make a sandbox with network "b.example,a.example"`},
			"the sandbox's network does not allow a.example; to allow it, use --network b.example,a.example"},
		{sandbox.Verdict{Code: sandbox.Failed, NextStep: `the sandbox's network does not allow a.example: if it needs that, make a sandbox with network "a.example"; the operator of the server must allow it first`},
			"the sandbox's network does not allow a.example; to allow it, use --network a.example"},
		{sandbox.Verdict{Code: sandbox.Failed, NextStep: `the sandbox has no network: if it needs one, make a sandbox`}, "the sandbox has no network; to allow a host, use --network, like --network example.com"},
		{sandbox.Verdict{Code: sandbox.SandboxLost, NextStep: "run it again"}, "run it again"},
		{sandbox.Verdict{Code: sandbox.Failed}, ""},
	} {
		if got := Next(c.v); got != c.want {
			t.Errorf("%s, %q: %q, want %q", c.v.Code, c.v.NextStep, got, c.want)
		}
	}
}

// TestCommandHints compares the hints for commands with the list of all hints: each
// translates one, and a hint that speaks to a model is translated, or no command
// meets it.
func TestCommandHints(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\|`, "|", `\_`, "_", `\*`, "*", `\<`, "<")
	hints := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), " | ")
		if len(cells) > 1 {
			last := strings.TrimSuffix(strings.TrimSpace(cells[len(cells)-1]), "|")
			hints[plain.Replace(strings.TrimSpace(strings.ReplaceAll(last, "\x00", `\|`)))] = true
		}
	}
	if len(hints) < 150 {
		t.Fatalf("only %d hints in errors.md", len(hints))
	}
	known := map[string]bool{}
	for _, c := range commandHints {
		known[c.hint] = true
		if !hints[c.hint] {
			t.Errorf("no error has the hint %q", c.hint)
		}
		example := strings.ReplaceAll(c.hint, "…", "EXAMPLE")
		if got := ForCommands(example); got == example || strings.Contains(got, "$") || strings.Contains(c.hint, "…") != strings.Contains(got, "EXAMPLE") {
			t.Errorf("%q: %q", example, got)
		}
	}
	for _, hint := range elsewhere {
		known[hint] = true
		if !hints[hint] {
			t.Errorf("no error has the hint %q, which no command meets", hint)
		}
	}
	toModel := regexp.MustCompile(`\bask (for (less|a|it)|the)\b|\bask for …|\bmake a (new )?sandbox\b|\b(list the directory|in the list of)\b|\b(write|read|list|run|preview|file)_[a-z]|\bby the file operations\b|\bthe operator (allows|to|why)\b|the server's`)
	for hint := range hints {
		if toModel.MatchString(hint) && !known[hint] {
			t.Errorf("a command may say %q: translate it in commandHints, or add it to the list of others", hint)
		}
	}
}

// elsewhere are hints that no command meets: [Next] replaces them by their
// verdict, or only tools, preview links and clients of a server get them.
var elsewhere = []string{
	"start a run with a timeout, or ask the operator to lift the maximum of runs",
	"give the value to a sandbox for one host (network.rules with a header), or have the operator set the secret in the server's configuration",
	"make a new sandbox with rules",
	"make a new sandbox with rules; they can then be replaced",
	"use the hosts of earlier rules, or make a new sandbox",
	"use it in a header and for a host that the operator names, or ask the operator to name this one",
	"ask for a longer timeout, or split the work",
	"use a template that has less, ask for as much, or accept it with --allow-unenforced …",
	"make a sandbox with more memory, or process the data in smaller pieces",
	"make a sandbox with a higher limit, or start fewer processes at a time",
	"send bytes that are not text in base64, with write_file",
	"use write_file, or start the server over stdio with --allow-dir and the directory to copy from and to",
	"use run_command with the language's own package manager, or language apt for packages of Debian",
	"…; what is in the sandbox already, list_languages tells",
	"make a sandbox with the argument workspace, or use read_file and write_file",
	"read it in parts with read_file",
	"ask for a new one",
	"use the complete URL, or ask for a new one",
	"open the complete URL from preview_url, or ask for a new one",
	"ask for a URL to write, with file_url and method PUT",
	"list_sandboxes lists sandboxes, and create_sandbox makes one",
	"send the complete token, or make a new one with glovebox token create NAME on the server's machine",
	"make a new one with glovebox token create … on the server's machine",
	"glovebox token create NAME --e2b on the server's machine makes an API key",
}

func TestOnce(t *testing.T) {
	for text, want := range map[string]string{
		`measure workspace: workspace: there is no workspace "a"`:       `measure workspace: there is no workspace "a"`,
		"listen: listen tcp 127.0.0.1:80: bind: address already in use": "listen tcp 127.0.0.1:80: bind: address already in use",
		"unpack archive: unpack archive: no space":                      "unpack archive: no space",
		"start run: memory: 128 B is below the minimum, 64 MiB":         "start run: memory: 128 B is below the minimum, 64 MiB",
		"read program: open a: b: no such file or directory":            "read program: open a: b: no such file or directory",
		"nothing to run": "nothing to run",
		"":               "",
	} {
		if got := Once(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
