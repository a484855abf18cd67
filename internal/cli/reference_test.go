package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/config"
)

var rewrite = flag.Bool("update", false, "rewrite the expected output in scripts and in docs/reference")

// TestReference keeps docs/reference in step with the commands' own help.
func TestReference(t *testing.T) {
	root := (&program{Streams: OS()}).root()
	var b strings.Builder
	b.WriteString("# Command line\n\n" +
		"This page has the texts of `--help`. `go test ./internal/cli -run Reference -update` writes it.\n")
	writeCommand(&b, root)
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			writeCommand(&b, c)
			for _, sub := range c.Commands() {
				writeCommand(&b, sub)
			}
		}
	}
	check(t, "cli.md", b.String())

	check(t, "configuration.md", "# Configuration\n\n"+
		"This file has every setting and its default. A test compares `internal/config/sample.yaml` with the code. "+
		"`go test ./internal/cli -run Reference -update` copies it here.\n\n```yaml\n"+config.Sample+"```\n")
}

func check(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "reference", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not in step; run this test with -update (-want +got):\n%s", path, diff)
	}
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short // as --help does
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath(), code(text))
	if c.Runnable() {
		fmt.Fprintf(b, "\n%s\n", code(c.UseLine()))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n%s\n", code(strings.TrimPrefix(strings.ReplaceAll(c.Example, "\n  ", "\n"), "  ")))
	}
	flags := c.LocalNonPersistentFlags()
	title := "Flags"
	if !c.HasParent() {
		flags, title = c.PersistentFlags(), "Flags of every command"
	}
	if usage := strings.TrimRight(flags.FlagUsages(), "\n"); usage != "" {
		fmt.Fprintf(b, "\n%s:\n\n%s\n", title, code(usage))
	}
}

func code(text string) string { return "```text\n" + strings.Trim(text, "\n") + "\n```" }
