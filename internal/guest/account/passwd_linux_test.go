package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A line that cannot be read is no account, least of all root's.
func TestBrokenEntries(t *testing.T) {
	for _, line := range []string{
		"", "user", "user:x:5:5", "user:x::5::/:/bin/sh", "user:x:five:5::/:/bin/sh", "user:x:-1:5::/:/bin/sh",
		"user:x:4294967296:5::/:/bin/sh", "user:x:5:4294967296::/:/bin/sh", "user:x:5:5::/:/bin/sh:more",
	} {
		if a := parseEntry(line); a != nil {
			t.Errorf("%q is %+v", line, a)
		}
	}
	a := parseEntry("user:x:5:6::/home:/bin/sh")
	if a == nil || a.Name != "user" || a.UID != 5 || a.GID != 6 || a.Home != "/home" || a.Shell != "/bin/sh" {
		t.Errorf("a good line is %+v", a)
	}
}

// The sandbox can change the files of accounts: their lines, their size and
// their kind.
func TestHostileAccountFiles(t *testing.T) {
	dir := t.TempDir()
	const good = "good\n"
	for _, tc := range []struct {
		name, text string
		want       int // lines
	}{
		{"Empty", "", 0},
		{"Lines", good + good, 2},
		{"LongLine", good + strings.Repeat("x", 128<<10) + "\n" + good, 1},
		{"LongFile", strings.Repeat(good, maxAccountFile/len(good)+100), maxAccountFile / len(good)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, tc.name)
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := countLines(path); got != tc.want {
				t.Errorf("%d lines, want %d", got, tc.want)
			}
		})
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, "/dev/zero", filepath.Join(dir, "absent")} {
		if got := countLines(path); got != 0 {
			t.Errorf("%s: %d lines, want none", path, got)
		}
	}
}

func countLines(path string) int {
	n := 0
	eachLine(path, func(string) bool { n++; return true })
	return n
}
