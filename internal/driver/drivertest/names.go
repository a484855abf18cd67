package drivertest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testName checks unusual paths and paths that try to leave a directory.
func testName(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	dir := b.Dir(t)
	t.Run("Dots", func(t *testing.T) { nameDots(t, st, b, dir) })
	t.Run("Strange", func(t *testing.T) { nameStrange(t, b, dir) })
	t.Run("NotUTF8", func(t *testing.T) { nameNotUTF8(t, b, dir) })
	t.Run("Bad", func(t *testing.T) { nameBad(t, b, dir) })
	t.Run("Links", func(t *testing.T) { nameLinks(t, st, b, dir) })
	t.Run("Argument", func(t *testing.T) { nameArgument(t, b) })
}

func nameDots(t *testing.T, st *site, b *Box, dir string) {
	b.MustSh(t, "mkdir -p a/b; echo here > target")
	// All of these name the same file, for the guest and for the box's kernel.
	for _, path := range []string{
		dir + "/a/../target",
		dir + "/a/b/../../target",
		dir + "//a/.././target",
		"/../../../../../../../../.." + dir + "/target",
	} {
		if got := b.read(t, path); got != "here\n" {
			t.Errorf("Read %q gives %q, want %q", path, got, "here\n")
		}
	}
	name := "drivertest-" + sandbox.NewID()
	path := dir + "/../../../../../../../../../../tmp/" + name
	_, err := b.Client.Write(step(t), path, strings.NewReader("escaped"), guestapi.WriteOptions{})
	if err != nil {
		wantRefused(t, "Write above the root", err)
	}
	host := "/tmp/" + name
	if _, lerr := os.Lstat(host); lerr == nil {
		if err := os.Remove(host); err != nil {
			t.Error(err)
		}
		if st.Info().Isolates {
			t.Errorf("Write to %s made the file %s on the host", path, host)
		}
	} else if err == nil {
		if got := b.read(t, "/tmp/"+name); got != "escaped" {
			t.Errorf("the root's parent must be the root: Read gives %q", got)
		}
	}
}

var strangeNames = []string{
	"new\nline", "tab\there", "carriage\rreturn", "\x1b[31mred", " leading", "trailing ", "-rf", "--", "~", "$(id)", "`id`",
	"%2e%2e", "%00", "a%2fb", "+", "a+b&c=d", "?q=1", "#fragment", "back\\slash", ":", "...", "..a", "\u202ertl", "e\u0301",
	strings.Repeat("n", 255),
}

func nameStrange(t *testing.T, b *Box, dir string) {
	top := dir + "/strange"
	for _, name := range strangeNames {
		path := top + "/" + name
		b.write(t, path, "content of "+name)
		if got := b.read(t, path); got != "content of "+name {
			t.Errorf("file %q: read %q", name, got)
		}
		r := b.MustRun(t, Cmd{Argv: []string{"cat", "--", path}})
		if r.Stdout != "content of "+name {
			t.Errorf("file %q is not there under that name for a program: %v", name, r)
		}
		if e, err := b.Client.Stat(step(t), path, asUser); err != nil || e.Name != name || e.Path != path {
			t.Errorf("Stat of %q: %+v, %v", name, e, err)
		}
	}
	l, err := b.Client.ListDir(step(t), top, 1, asUser)
	if err != nil || len(l.Entries) != len(strangeNames) {
		t.Fatalf("ListDir of %d files: %v, %v", len(strangeNames), l, err)
	}
	have := map[string]bool{}
	for _, e := range l.Entries {
		have[e.Name] = true
	}
	for _, name := range strangeNames {
		if !have[name] {
			t.Errorf("ListDir lacks %q", name)
		}
		if err := b.Client.Move(step(t), top+"/"+name, top+"/moved", asUser); err != nil {
			t.Errorf("Move of %q: %v", name, err)
		} else if err := b.Client.Remove(step(t), top+"/moved", asUser); err != nil {
			t.Errorf("Remove after Move of %q: %v", name, err)
		}
	}
	if out := b.MustSh(t, "ls -A strange"); out != "" {
		t.Errorf("after removing all: left %q", out)
	}
}

func nameNotUTF8(t *testing.T, b *Box, dir string) {
	name := "latin-\xe9-\xff\xfe-end"
	path := dir + "/raw/" + name
	if _, err := b.Client.Write(step(t), path, strings.NewReader("raw"), guestapi.WriteOptions{}); err != nil {
		t.Fatalf("Write to a name that is not UTF-8: %v", err)
	}
	if out := b.MustSh(t, "ls -A raw | od -An -tx1 | tr -d ' \\n'"); out != hexOf(name+"\n") {
		t.Errorf("the file's name in the box is %s, want the bytes of %q", out, name)
	}
	if got := b.read(t, path); got != "raw" {
		t.Errorf("Read of a name that is not UTF-8: %q", got)
	}
	check := func(what string, e *guestapi.Entry) {
		if !bytes.Equal(e.RawPath, []byte(path)) {
			t.Errorf("%s: RawPath is %q, want %q", what, e.RawPath, path)
		}
		if want := strings.ToValidUTF8(name, "\uFFFD"); strings.ReplaceAll(e.Name, "\uFFFD\uFFFD", "\uFFFD") != want {
			t.Errorf("%s: Name is %q, want U+FFFD in place of what is not UTF-8", what, e.Name)
		}
	}
	e, err := b.Client.Stat(step(t), path, asUser)
	if err != nil {
		t.Fatalf("Stat of a name that is not UTF-8: %v", err)
	}
	check("Stat", e)
	l, err := b.Client.ListDir(step(t), dir+"/raw", 1, asUser)
	if err != nil || len(l.Entries) != 1 {
		t.Fatalf("ListDir with a name that is not UTF-8: %+v, %v", l, err)
	}
	check("ListDir", &l.Entries[0])
	if err := b.Client.Remove(step(t), path, asUser); err != nil {
		t.Errorf("Remove of a name that is not UTF-8: %v", err)
	}
	if out := b.MustSh(t, "ls -A raw"); out != "" {
		t.Errorf("after Remove: left %q", out)
	}
}

func hexOf(s string) string {
	const digits = "0123456789abcdef"
	var sb strings.Builder
	for i := range len(s) {
		sb.WriteByte(digits[s[i]>>4])
		sb.WriteByte(digits[s[i]&15])
	}
	return sb.String()
}

func nameBad(t *testing.T, b *Box, dir string) {
	for name, path := range map[string]string{
		"empty": "", "NUL": dir + "/a\x00b", "long": dir + "/" + strings.Repeat("n", 256),
		"very long": dir + strings.Repeat("/"+strings.Repeat("n", 200), 100),
	} {
		if name != "empty" { // an empty path may be the working directory
			_, err := b.Client.Stat(step(t), path, asUser)
			wantRefused(t, "Stat of a bad name: "+name, err)
			_, err = b.Client.ListDir(step(t), path, 1, asUser)
			wantRefused(t, "ListDir of a bad name: "+name, err)
			_, _, err = b.Client.Read(step(t), path, 0, -1, asUser)
			wantRefused(t, "Read of a bad name: "+name, err)
			wantRefused(t, "Remove of a bad name: "+name, b.Client.Remove(step(t), path, asUser))
		}
		_, err := b.Client.Write(step(t), path, strings.NewReader("x"), guestapi.WriteOptions{})
		wantRefused(t, "Write to a bad name: "+name, err)
	}
	b.Answers(t, "after bad names")
}

func nameLinks(t *testing.T, st *site, b *Box, dir string) {
	b.MustSh(t, `mkdir -p links/real && cd links && echo content > real/file && ln -s real/file file && ln -s real dir &&
ln -s loop2 loop1 && ln -s loop1 loop2 && ln -s /proc/self/root/etc/passwd proc`)
	top := dir + "/links"
	if got := b.read(t, top+"/file"); got != "content\n" {
		t.Errorf("Read through a link: %q", got)
	}
	if got := b.read(t, top+"/dir/file"); got != "content\n" {
		t.Errorf("Read through a linked directory: %q", got)
	}
	_, _, err := b.Client.Read(step(t), top+"/loop1", 0, -1, asUser)
	wantRefused(t, "Read of a loop of links", err)
	if err := b.Client.Remove(step(t), top+"/dir", asUser); err != nil {
		t.Errorf("Remove of a link: %v", err)
	}
	if out := b.MustSh(t, "ls links/real; ls links"); out != "file\nfile\nloop1\nloop2\nproc\nreal\n" {
		t.Errorf("Remove of a link must remove the link alone; left %q", out)
	}
	if !st.Info().Isolates {
		return
	}
	// Links resolve inside the box.
	secret := hostFile(t, os.TempDir())
	b.MustSh(t, "ln -s "+secret.path+" links/host; ln -s /proc/1/root"+secret.path+" links/init")
	for _, name := range []string{"host", "init"} {
		r, _, err := b.Client.Read(step(t), top+"/"+name, 0, -1, asRoot)
		if err == nil {
			r.Close()
			t.Errorf("Read of a link to %s, a file of the host, succeeds", secret.path)
		}
	}
}

func nameArgument(t *testing.T, b *Box) {
	args := []string{"new\nline", "tab\t", "", " ", "ünï", "\"'`$\\"}
	r := b.MustRun(t, Cmd{Argv: append([]string{"printf", "<%s>"}, args...)})
	if want := "<" + strings.Join(args, "><") + ">"; r.Stdout != want {
		t.Errorf("arguments must come through as they are: got %q, want %q", r.Stdout, want)
	}
}
