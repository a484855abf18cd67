package patch

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // Git's names of contents
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func side(mode uint32, text string) Side {
	if mode == 0 {
		return Side{}
	}
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(text), text))) //nolint:gosec // see the import
	return Side{Mode: mode, ID: fmt.Sprintf("%x", sum), Content: []byte(text), HasContent: true}
}

func TestFile(t *testing.T) {
	for name, test := range map[string]struct {
		old, now Side
		want     string
	}{
		"changed line": {side(ModeFile, "a\nb\nc\n"), side(ModeFile, "a\nB\nc\n"),
			"diff --git a/f b/f\nindex de980441c3ab03a8c07dda1ad27b8a11f39deb1e..7be73ce3c1b1cdaea86e8168dfee8575175953bf 100644\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		"no end": {side(ModeFile, "a"), side(ModeFile, "a\n"),
			"diff --git a/f b/f\nindex 2e65efe2a145dda7ee51d1741299f848e5bf752e..78981922613b2afb6025042ff6bd878ac1994e85 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		"mode": {side(ModeFile, "a"), side(ModeExecutable, "a"),
			"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"},
		"empty": {Side{}, side(ModeFile, ""),
			"diff --git a/f b/f\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"},
		"binary": {Side{}, side(ModeFile, "\x00"),
			"diff --git a/f b/f\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d\nBinary files /dev/null and b/f differ\n"},
	} {
		var w bytes.Buffer
		if !File(&w, "f", test.old, test.now, false) {
			t.Errorf("%s: not written", name)
		}
		if diff := cmp.Diff(test.want, w.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var w bytes.Buffer
	if File(&w, "f", Side{Mode: ModeFile}, side(ModeFile, "a"), true) || w.Len() > 0 {
		t.Errorf("a change of unknown contents was written for git apply: %q", w.String())
	}
}

func TestQuote(t *testing.T) {
	for name, want := range map[string]string{
		"a b": "a b", "é": `"\303\251"`, "a\tb\"c\\d": `"a\tb\"c\\d"`, "\x01\x7f": `"\001\177"`,
	} {
		if got := quote(name); got != want {
			t.Errorf("quote(%q) is %s, want %s", name, got, want)
		}
	}
}

// TestApply has git apply random changes of a tree.
func TestApply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func(most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString([]string{"a\n", "b\n", "\n", "}\n", "\tlonger line\n", "é\r\n", fmt.Sprintf("%d\n", r.IntN(50))}[r.IntN(7)])
		}
		if r.IntN(4) == 0 {
			b.WriteString("no end")
		}
		return b.String()
	}
	binaryText := func() string {
		b := make([]byte, r.IntN(400))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b) + "\x00"
	}
	change := func(s string) string {
		lines := strings.SplitAfter(s, "\n")
		for range r.IntN(6) {
			i := r.IntN(len(lines))
			lines[i] = text(r.IntN(3))
		}
		return strings.Join(lines, "")
	}
	modes := []uint32{ModeFile, ModeFile, ModeExecutable}
	any := func() Side {
		switch r.IntN(6) {
		case 0:
			return Side{}
		case 1:
			return side(ModeLink, "target "+fmt.Sprint(r.IntN(9)))
		case 2:
			return side(modes[r.IntN(3)], binaryText())
		}
		return side(modes[r.IntN(3)], text(60))
	}
	names := []string{"plain", "dir/with blank", "dir/é", "quote\"d", "tab\t", "a", "deep/er/file"}
	for round := range 40 {
		dir := t.TempDir()
		var w bytes.Buffer
		want := map[string]Side{}
		for _, name := range names {
			old, now := any(), any()
			if old.Mode != 0 && old.Mode != ModeLink && r.IntN(2) == 0 {
				now = side(old.Mode, change(string(old.Content)))
			}
			write(t, dir, name, old)
			want[name] = now
			if old.Mode == now.Mode && old.ID == now.ID {
				continue
			}
			if r.IntN(3) == 0 && old.Mode != 0 && now.Mode != 0 { // contents that were not kept
				old.HasContent, old.Content = false, nil
			}
			if !File(&w, name, old, now, true) {
				t.Fatalf("%q was not written", name)
			}
		}
		if w.Len() == 0 {
			continue
		}
		cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(w.Bytes())
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("round %d: %v\n%s\n%s", round, err, out, w.Bytes())
		}
		for name, s := range want {
			if got := read(t, dir, name); got.Mode != s.Mode || string(got.Content) != string(s.Content) {
				t.Errorf("round %d: %q is %o %q, want %o %q", round, name, got.Mode, got.Content, s.Mode, s.Content)
			}
		}
	}
}

func write(t *testing.T, dir, name string, s Side) {
	file := filepath.Join(dir, name)
	if s.Mode == 0 {
		return
	}
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil && s.Mode == ModeLink {
		err = os.Symlink(string(s.Content), file)
	} else if err == nil {
		err = os.WriteFile(file, s.Content, os.FileMode(s.Mode&0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) Side {
	file := filepath.Join(dir, name)
	fi, err := os.Lstat(file)
	if err != nil {
		return Side{}
	}
	if fi.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(file)
		if err != nil {
			t.Fatal(err)
		}
		return Side{Mode: ModeLink, Content: []byte(target)}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Side{Mode: 0o100000 | uint32(fi.Mode().Perm()), Content: b}
}

// TestLines counts the lines of differences, which a worse algorithm would not find.
func TestLines(t *testing.T) {
	long := func(n int, line string) string { return strings.Repeat(line, n) }
	for name, test := range map[string]struct {
		old, now string
		most     int // lines that are added and removed
	}{
		"one line among equal ones": {long(400, "x\n"), long(200, "x\n") + "y\n" + long(200, "x\n"), 1},
		"a moved line":              {"a\nb\nc\nd\ne\n", "b\nc\nd\ne\na\n", 2},
		"a block among braces":      {"f {\n1\n}\n\ng {\n2\n}\n", "f {\n1\n}\n\nh {\n3\n}\n\ng {\n2\n}\n", 4},
		"nothing in common":         {long(300_000, "a\n"), long(300_000, "b\n"), 600_000},
	} {
		var w bytes.Buffer
		unified(&w, []byte(test.old), []byte(test.now))
		got := 0
		for line := range strings.Lines(w.String()) {
			if line[0] == '+' || line[0] == '-' {
				got++
			}
		}
		if got > test.most {
			t.Errorf("%s: %d lines, want at most %d", name, got, test.most)
		}
	}
}

func FuzzUnified(f *testing.F) {
	f.Add("a\nb\n", "b\nc")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, old, now string) {
		var w bytes.Buffer
		unified(&w, []byte(old), []byte(now))
		if got := apply(old, w.String()); got != now {
			t.Errorf("%q and %q: the hunks\n%s\nmake %q", old, now, w.String(), got)
		}
	})
}

// apply applies hunks to a text.
func apply(old, hunks string) string {
	lines := split([]byte(old))
	var out strings.Builder
	at := 0
	parts := strings.SplitAfter(hunks, "\n")
	for i, line := range parts {
		if line == "" || line[0] == '\\' {
			continue
		}
		text := line[1:]
		if i+1 < len(parts) && strings.HasPrefix(parts[i+1], `\`) {
			text = strings.TrimSuffix(text, "\n")
		}
		switch line[0] {
		case '@':
			var from, n int
			if k, _ := fmt.Sscanf(line, "@@ -%d,%d ", &from, &n); k < 2 {
				n = 1
			}
			if n > 0 {
				from--
			}
			for ; at < from; at++ {
				out.Write(lines[at])
			}
		case '+':
			out.WriteString(text)
		default:
			if at >= len(lines) || string(lines[at]) != text {
				return "does not apply"
			}
			if at++; line[0] == ' ' {
				out.WriteString(text)
			}
		}
	}
	for ; at < len(lines); at++ {
		out.Write(lines[at])
	}
	return out.String()
}
