package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// An example is a block of a page of the documentation.
type example struct {
	// info is what stands behind the opening fence, as "sh" or "sh skip why".
	info, text string
	// output is the text of a block of output right after it; has says that
	// there is one.
	output string
	has    bool
}

var (
	block  = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	after  = regexp.MustCompile("(?s)^\n\n```output\n(.*?)```")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// marks are what a block of commands may have behind its language: nothing for
// those that are run on the embedded sandbox, docker for those that are run where
// engines are, and skip with the reason for those that cannot be run.
var marks = regexp.MustCompile(`^(docker|skip: \S.{9,})?$`)

// pages are the pages of the documentation by their names, without the
// reference, which is made of the program's own words. Where they are not here
// the test is skipped.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skip("the documentation is not here; the test runs in a checkout")
	}
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/guides/*.md", "images/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.ToSlash(name)] = string(text)
		}
	}
	return all
}

// examples returns the blocks of a page.
func examples(page string) []example {
	var all []example
	for _, m := range block.FindAllStringSubmatchIndex(page, -1) {
		e := example{info: page[m[2]:m[3]], text: page[m[4]:m[5]]}
		if out := after.FindStringSubmatch(page[m[1]:]); out != nil {
			e.output, e.has = out[1], true
		}
		all = append(all, e)
	}
	return all
}

// shell returns what is behind the language of a block of commands; ok is false
// for other blocks.
func (e example) shell() (mark string, ok bool) {
	language, mark, _ := strings.Cut(e.info, " ")
	return mark, language == "sh"
}

// TestDocsCommands looks at every command of ours in the documentation, whether
// in a block or in the middle of a sentence, and in configurations of clients:
// the command exists, and so do its flags. That blocks are run is for
// TestDocsGvisor and TestDocsDocker.
func TestDocsCommands(t *testing.T) {
	commands := 0
	for name, page := range pages(t) {
		for _, e := range examples(page) {
			mark, ok := e.shell()
			if ok && !marks.MatchString(mark) {
				t.Errorf("%s: a block of commands is marked %q; there is nothing, docker, and \"skip: \" with the reason", name, mark)
			}
			if ok {
				for line := range strings.Lines(strings.ReplaceAll(e.text, "\\\n", " ")) {
					commands += checkCommand(t, name, line)
				}
			}
			if e.info == "json" {
				commands += checkClient(t, name, e.text)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
			commands += checkCommand(t, name, m[1])
			if strings.HasPrefix(m[1], "--") {
				checkFlag(t, name, m[1])
			}
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "    glovebox ") || strings.HasPrefix(line, "    export ") {
				t.Errorf("%s: commands belong into a block that begins with ```sh: %s", name, line)
			}
		}
	}
	if commands < 50 {
		t.Errorf("only %d commands were found", commands)
	}
}

// called finds our commands in a line of shell.
var called = regexp.MustCompile(`(?:^|[ (|])(?:bin/)?glovebox ((?:'[^']*'|"[^"]*"|[^'"|;&()<>])*)`)

// checkCommand looks at our commands in a line, and returns how many there are.
func checkCommand(t *testing.T, page, line string) int {
	t.Helper()
	found := called.FindAllStringSubmatch(line, -1)
	for _, m := range found {
		text, _, _ := strings.Cut(m[1], " #")
		checkArgs(t, page, line, words(text))
	}
	return len(found)
}

// words splits a command as a shell does, as far as the documentation goes.
func words(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\S)+`).FindAllString(text, -1) {
		all = append(all, strings.NewReplacer(`'`, "", `"`, "").Replace(m))
	}
	return all
}

// checkArgs looks for a command and its flags.
func checkArgs(t *testing.T, page, line string, args []string) {
	t.Helper()
	if len(args) == 0 || strings.Trim(args[0], "…. ") == "" {
		return
	}
	root := (&program{Streams: OS()}).root()
	if args[0] == "help" {
		args = args[1:]
		if len(args) == 0 {
			return
		}
	}
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root && !strings.HasPrefix(args[0], "-") {
		t.Errorf("%s: %q: there is no such command: %v", page, strings.TrimSpace(line), err)
		return
	}
	if slices.Contains(rest, "--help") {
		return
	}
	// In the middle of a sentence a flag that takes a value stands alone.
	if err := cmd.ParseFlags(rest); err != nil && !strings.Contains(err.Error(), "needs an argument") {
		t.Errorf("%s: %q: %v", page, strings.TrimSpace(line), err)
	}
}

// foreign are flags in the documentation that are a Dockerfile's, or those of
// servers that Glovebox replaces, which links with their names take.
var foreign = []string{"--install", "--transport", "--port", "--", "--chown", "--chmod"}

// checkFlag looks for a flag that is named by itself: some command has it.
func checkFlag(t *testing.T, page, text string) {
	t.Helper()
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.Fields(text)[0], "--"), "=")
	if slices.Contains(foreign, "--"+name) {
		return
	}
	var has func(c *cobra.Command) bool
	has = func(c *cobra.Command) bool {
		return c.Flag(name) != nil || slices.ContainsFunc(c.Commands(), has)
	}
	if !has((&program{Streams: OS()}).root()) {
		t.Errorf("%s: no command has the flag %q", page, text)
	}
}

// checkClient looks at the configuration of an MCP client.
func checkClient(t *testing.T, page, text string) int {
	t.Helper()
	var file struct {
		MCPServers map[string]struct {
			Command, URL string
			Args         []string
		}
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil || len(file.MCPServers) == 0 {
		t.Errorf("%s: %v in the configuration of a client:\n%s", page, err, text)
	}
	found := 0
	for _, s := range file.MCPServers {
		if s.URL == "" {
			checkArgs(t, page, strings.Join(s.Args, " "), s.Args)
			found++
		}
	}
	return found
}
