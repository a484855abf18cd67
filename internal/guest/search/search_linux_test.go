package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// tree makes files below a new directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shown returns an answer as grep would print it.
func shown(dir string, f *sandbox.Found) string {
	var b strings.Builder
	for _, file := range f.Files {
		for _, l := range file.Lines {
			sep := "-"
			if l.Match {
				sep = ":"
			}
			fmt.Fprintf(&b, "%s%s%d%s%s\n", strings.TrimPrefix(file.Path, dir+"/"), sep, l.Line, sep, l.Text)
		}
	}
	return b.String()
}

func find(t *testing.T, dir string, r sandbox.SearchRequest) *sandbox.Found {
	t.Helper()
	f, err := Find(t.Context(), &r, dir)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return f
}

func TestFind(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.go": "one\ntwo\nthree\nfour\nfive", "b/c.go": "two two\r\nzwei\r\n", "b/d.txt": "two\n", "b.go": "x\n",
		".gitignore": "out/\n*.log\n", "out/e.go": "two\n", "f.log": "two\n", "sub/.gitignore": "!g.log\n", "sub/g.log": "two\n",
		".git/config": "two\n", "bin": "two\x00", "empty": "", "tail/z": "sentwo",
	})
	for what, c := range map[string]struct {
		r    sandbox.SearchRequest
		want string
		n    [4]int // matches, files, omitted, searched
	}{
		"literal":      {sandbox.SearchRequest{Pattern: "two"}, "a.go:2:two\nb/c.go:1:two two\nb/d.txt:1:two\nsub/g.log:1:two\ntail/z:1:sentwo\n", [4]int{5, 5, 0, 9}},
		"glob":         {sandbox.SearchRequest{Pattern: "two", Glob: "*.go"}, "a.go:2:two\nb/c.go:1:two two\n", [4]int{2, 2, 0, 3}},
		"deep glob":    {sandbox.SearchRequest{Pattern: "two", Glob: "b/**/*.{go,txt}"}, "b/c.go:1:two two\nb/d.txt:1:two\n", [4]int{2, 2, 0, 2}},
		"context":      {sandbox.SearchRequest{Pattern: "^t[wh]", Glob: "a.go", Context: 1}, "a.go-1-one\na.go:2:two\na.go:3:three\na.go-4-four\n", [4]int{2, 1, 0, 1}},
		"more context": {sandbox.SearchRequest{Pattern: "four", Glob: "a.go", Context: 2}, "a.go-2-two\na.go-3-three\na.go:4:four\na.go-5-five\n", [4]int{1, 1, 0, 1}},
		"maximum":      {sandbox.SearchRequest{Pattern: "two", Max: 2}, "a.go:2:two\nb/c.go:1:two two\n", [4]int{5, 5, 3, 9}},
		"ignored":      {sandbox.SearchRequest{Pattern: "two", Ignored: true, Glob: "{out,.git}/*"}, ".git/config:1:two\nout/e.go:1:two\n", [4]int{2, 2, 0, 2}},
		"end of line":  {sandbox.SearchRequest{Pattern: "(?i)(TWO|zwei)$", Glob: "c.go"}, "b/c.go:1:two two\nb/c.go:2:zwei\n", [4]int{2, 1, 0, 1}},
		"CRLF":         {sandbox.SearchRequest{Pattern: `i\r$`}, "b/c.go:2:zwei\r\n", [4]int{1, 1, 0, 9}},
		"nothing":      {sandbox.SearchRequest{Pattern: "seven"}, "", [4]int{0, 0, 0, 9}},
	} {
		f := find(t, dir, c.r)
		if diff := cmp.Diff(c.want, shown(dir, f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if n := [4]int{f.Matches, f.MatchedFiles, f.Omitted, f.Searched}; n != c.n || f.Incomplete || f.Unreadable > 0 {
			t.Errorf("%s: %v, want %v; %+v", what, n, c.n, f.Cut)
		}
	}
	if f := find(t, dir, sandbox.SearchRequest{Pattern: "two"}); f.Binary != 1 {
		t.Errorf("%d binary files", f.Binary)
	}
	// The rules of the directories above count, up to the one that has .git.
	if f := find(t, dir+"/sub", sandbox.SearchRequest{Pattern: "two"}); f.Matches != 1 {
		t.Errorf("in sub: %+v", f)
	}
	if err := os.WriteFile(dir+"/b/h.log", []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := find(t, dir+"/b", sandbox.SearchRequest{Pattern: "two", Glob: "*.log"}); f.Searched != 0 {
		t.Errorf("in b: %+v", f)
	}
	if f := find(t, dir+"/a.go", sandbox.SearchRequest{Pattern: "o$"}); shown(dir, f) != "a.go:2:two\n" {
		t.Errorf("in one file: %+v", f)
	}
}

func TestCompile(t *testing.T) {
	for _, pattern := range []string{"", "(", `(a)\1`, "(?=a)", "a\nb", "(((a{100}){10})b{500}){2}", `\p{Greek}{999}{9}`, strings.Repeat("a", sandbox.MaxPattern+1)} {
		if _, err := Compile(pattern); err == nil || !strings.HasPrefix(err.Error(), "pattern: ") {
			t.Errorf("%.20q: %v", pattern, err)
		}
	}
	for pattern, literal := range map[string]string{
		"abc": "abc", "a+bcd*": "bc", "(?i)abc": "", "(abc|abd)e": "ab", "x(hello)+y": "hello", "[ab]c{2}": "c", "a?": "", "�": "",
	} {
		if p, err := Compile(pattern); err != nil || string(p.literal) != literal {
			t.Errorf("%s requires %q, %v; want %q", pattern, p.literal, err, literal)
		}
	}
}

// TestCatastrophic: patterns for which other engines take exponential time.
func TestCatastrophic(t *testing.T) {
	dir := tree(t, map[string]string{"a": strings.Repeat("a", 10_000) + "!\n", "long": strings.Repeat("a", 100_000) + "!"})
	for _, pattern := range []string{"(a+)+$", "(a|aa)+$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){20}x"} {
		if f := find(t, dir, sandbox.SearchRequest{Pattern: pattern}); f.Matches != 0 || f.Searched != 2 || f.Incomplete {
			t.Errorf("%s: %+v", pattern, f)
		}
	}
}

// TestHostileFiles: a search opens regular files only, and follows no link.
func TestHostileFiles(t *testing.T) {
	dir := tree(t, map[string]string{"d/f": "needle\n", "closed/f": "needle\n"})
	for name, err := range map[string]error{
		"fifo":   unix.Mkfifo(dir+"/fifo", 0o644),
		"loop":   os.Symlink(dir, dir+"/loop"),
		"device": os.Symlink("/dev/zero", dir+"/device"),
		"out":    os.Symlink("/proc/self/environ", dir+"/out"),
		"socket": unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o644, 0),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	f := find(t, dir, sandbox.SearchRequest{Pattern: "needle"})
	if f.Matches != 2 || f.Searched != 2 {
		t.Errorf("%+v", f)
	}
	for _, path := range []string{dir + "/fifo", "/dev/null", "/proc", "/sys"} {
		_, err := Find(t.Context(), &sandbox.SearchRequest{Pattern: "x"}, path)
		if err == nil || rpc.Wire(err).Code != guestapi.CodeInvalidArgument {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Find(t.Context(), &sandbox.SearchRequest{Pattern: "x"}, dir+"/none"); err == nil || rpc.Wire(err).Code != guestapi.CodeNotFound {
		t.Errorf("nothing: %v", err)
	}
}

// TestGrowing: a file is searched up to the size that it had, and one that shrank to
// its end.
func TestGrowing(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("needle\n", 100)})
	for size, want := range map[int64]int{70: 10, 1 << 30: 100} {
		f, err := os.Open(dir + "/f")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile("needle")
		if err != nil {
			t.Fatal(err)
		}
		l := NewLines(p, 0, 5)
		l.file(t.Context(), file(f.Fd()), size, "f")
		f.Close()
		if l.Found.Matches != want || l.Found.Omitted != want-5 {
			t.Errorf("size %d: %+v", size, l.Found)
		}
	}
}

// TestEnd: when its time has passed, a walk says where it ended.
func TestEnd(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("d%02d/f", i)] = "x\n"
	}
	dir := tree(t, files)
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	w := &Walk{Root: dir}
	cut, err := w.Run(ctx, func(e Entry) error {
		if n++; e.Rel == "d07" {
			cancel(nil)
		}
		return nil
	})
	if err != nil || !cut.Incomplete || cut.At != dir+"/d06/f" || cut.Reason == "" || n != 15 {
		t.Errorf("%+v after %d, %v", cut, n, err)
	}
	ctx, done := context.WithTimeout(t.Context(), 0)
	defer done()
	f, err := Find(ctx, &sandbox.SearchRequest{Pattern: "x"}, dir)
	if err != nil || !f.Incomplete || !strings.Contains(f.Reason, "time") {
		t.Errorf("%+v, %v", f, err)
	}
	fail := errors.New("fail")
	if _, err := (&Walk{Root: dir}).Run(t.Context(), func(Entry) error { return fail }); err != fail {
		t.Errorf("%v", err)
	}
}

// TestManyFiles: a search of 200,000 files in one directory and of deep directories
// leaves no descriptor open, and the room for names bounds its memory.
func TestManyFiles(t *testing.T) {
	const files = 200_000
	dir, err := os.MkdirTemp("/dev/shm", "glovebox-test-") // on a disk, this takes minutes
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range files {
		fd, err := unix.Openat(int(d.Fd()), "f"+strconv.Itoa(i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	deep := dir + strings.Repeat("/d", maxDepth+10)
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	f := find(t, dir, sandbox.SearchRequest{Pattern: "x", Max: 1})
	if f.Searched != files && !f.Incomplete || f.Unreadable != 1 && !f.Incomplete {
		t.Errorf("%+v", f)
	}
	n := 0
	cut, err := List(t.Context(), dir, "f*9", 0, func(string) error { n++; return nil })
	if n != files/10 && !cut.Incomplete || err != nil {
		t.Errorf("%d files, %+v, %v", n, cut, err)
	}
	if _, err := d.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := readNames(t.Context(), d, 1<<20); !errors.Is(err, errNames) {
		t.Errorf("with little room: %v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// FuzzLines compares the search of a file, with a buffer of few bytes, with the search
// of each of its lines.
func FuzzLines(f *testing.F) {
	f.Add("b", "a\nb\r\nabcdefghijklmnopqrstuvwxyz b\n\nb", 1)
	f.Add("^$|x+$", "x\n\ny\r\n\xff\n", 0)
	f.Add("(?i)AB", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\nab", 3)
	f.Fuzz(func(t *testing.T, pattern, text string, around int) {
		p, err := Compile(pattern)
		if err != nil || around < 0 || around > 3 || strings.Contains(text, "\x00") || p.ends || len(text) > 2000 {
			return
		}
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file1, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file1.Close()
		re := regexp.MustCompile(pattern)
		var lines []string
		if text != "" {
			lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		}
		keep := map[int]bool{}
		matches := 0
		for i, line := range lines {
			if re.MatchString(strings.TrimSuffix(line, "\r")) {
				matches++
				for k := i - around; k <= i+around; k++ {
					keep[k] = true
				}
			}
		}
		for _, size := range []int{16, bufferSize} {
			l := NewLines(p, around, sandbox.MaxMatches)
			l.buf = make([]byte, size)
			l.file(t.Context(), file(file1.Fd()), int64(len(text)), "f")
			if l.Found.Matches != matches {
				t.Fatalf("%q in %q with a buffer of %d: %d matches, want %d", pattern, text, size, l.Found.Matches, matches)
			}
			got := map[int]bool{}
			for _, file := range l.Found.Files {
				for _, line := range file.Lines {
					if got[line.Line] || !utf8.ValidString(line.Text) {
						t.Fatalf("%q in %q: line %d twice, or not UTF-8", pattern, text, line.Line)
					}
					got[line.Line] = true
				}
			}
			for i := range lines {
				if got[i+1] != keep[i] && l.Found.Omitted == 0 {
					t.Fatalf("%q in %q with a buffer of %d: line %d is %v, want %v", pattern, text, size, i+1, got[i+1], keep[i])
				}
			}
		}
	})
}

func TestExcerpt(t *testing.T) {
	line := append(bytes.Repeat([]byte("ä"), 300), "needle"...)
	line = append(line, bytes.Repeat([]byte("ö"), 300)...)
	text := excerpt(line, 600)
	if !utf8.ValidString(text) || strings.Contains(text, "\uFFFD") || !strings.Contains(text, "needle") || len(text) > maxShown+6 {
		t.Errorf("%q", text)
	}
}
