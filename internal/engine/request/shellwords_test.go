package request

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlainWords(t *testing.T) {
	for _, tc := range []struct {
		command string
		want    []string // nil: the shell's
	}{
		{"ls", []string{"ls"}},
		{" \tls  -la\t/tmp/x \n", []string{"ls", "-la", "/tmp/x"}},
		{"/bin/true", []string{"/bin/true"}},
		{"/bin/echo a=b --c=d e@f 50%", []string{"/bin/echo", "a=b", "--c=d", "e@f", "50%"}},
		{`python3 -c 'print("$HOME", 1 * 2)'`, []string{"python3", "-c", `print("$HOME", 1 * 2)`}},
		{`grep -rn "a | b; 'c' > *" ./src`, []string{"grep", "-rn", "a | b; 'c' > *", "./src"}},
		{`git commit -m'two words'" and three"`, []string{"git", "commit", "-mtwo words and three"}},
		{"printenv ''", []string{"printenv", ""}},
		{"env 'two\nlines'", []string{"env", "two\nlines"}},
		{`"ls"`, []string{"ls"}},
		{"git status\n", []string{"git", "status"}},

		{"", nil},
		{" \n", nil},
		{"''", nil},
		{"echo hello", nil},
		{"'echo' hello", nil},
		{"cd /tmp", nil},
		{"time ls", nil},
		{"A=1 env", nil},
		{"ls; id", nil},
		{"ls\nid", nil},
		{"ls &", nil},
		{"ls|wc", nil},
		{"ls >x", nil},
		{"ls <x", nil},
		{"(ls)", nil},
		{"{ ls", nil},
		{"! ls", nil},
		{"ls $HOME", nil},
		{`ls "$HOME"`, nil},
		{"ls `id`", nil},
		{"ls \"`id`\"", nil},
		{`ls a\ b`, nil},
		{`ls "a\"b"`, nil},
		{"ls *", nil},
		{"ls ?", nil},
		{"ls [a]", nil},
		{"ls {a,b}", nil},
		{"ls ~", nil},
		{"ls #no", nil},
		{"ls ^a", nil},
		{"ls 'a", nil},
		{`ls "a`, nil},
		{"ls é", nil},
		{"ls a\r", nil},
		{"setsid ls", nil},
		{"ls a\x00b", nil},
		{"ls a\vb", nil},
	} {
		if diff := cmp.Diff(tc.want, PlainWords(tc.command)); diff != "" {
			t.Errorf("words of %q (-want +got):\n%s", tc.command, diff)
		}
	}
}

// FuzzPlainWords asks the shells of this machine what the words of a command
// are, of those that are said to need none.
func FuzzPlainWords(f *testing.F) {
	for _, s := range []string{"show a", "show 'a b'\"c\" ''", " show\ta=b -x:y,z+@% ", "show \"'\" '\"'", "show 'a\nb'", "show a\r"} {
		f.Add(s)
	}
	dir := f.TempDir()
	show := "#!/bin/sh\nprintf '%s\\0' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "show"), []byte(show), 0o755); err != nil {
		f.Fatal(err)
	}
	var shells []string
	for _, name := range []string{"sh", "dash", "bash", "busybox", "zsh", "mksh"} {
		if path, err := exec.LookPath(name); err == nil {
			shells = append(shells, path)
		}
	}
	if len(shells) == 0 {
		f.Skip("this machine has no shell")
	}
	f.Fuzz(func(t *testing.T, command string) {
		words := PlainWords(command)
		if len(words) == 0 || words[0] != "show" || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "\x00") }) {
			return
		}
		var want strings.Builder
		for _, w := range words[1:] {
			want.WriteString(w + "\x00")
		}
		if len(words) == 1 {
			want.WriteString("\x00")
		}
		for _, shell := range shells {
			args := []string{"-c", command}
			if filepath.Base(shell) == "busybox" {
				args = append([]string{"sh"}, args...)
			}
			cmd := exec.CommandContext(context.Background(), shell, args...)
			cmd.Env, cmd.Dir = []string{"PATH=" + dir + ":/usr/bin:/bin"}, dir
			got, err := cmd.Output()
			if err != nil || string(got) != want.String() {
				t.Errorf("%s has %q for %q, %v; want %q", shell, got, command, err, want.String())
			}
		}
	})
}
