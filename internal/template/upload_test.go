package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestUpload(t *testing.T) {
	now := time.Now()
	s, _ := newTest(t, func(o *Options) {
		o.ContextSize = 100
		o.Now = func() time.Time { return now }
	})
	ctx := t.Context()
	if _, _, err := s.Request(ctx, alice, Order{Name: "app"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Request(ctx, bob, Order{Name: "app"}); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 100)
	has := func(p sandbox.Principal, want bool) {
		t.Helper()
		if tm, got, err := s.HasFiles(ctx, p, "app", hash); got != want || err != nil || tm.Principal != p || tm.Name != "app" {
			t.Errorf("the files are here for %s: %t, %v", p, got, err)
		}
	}
	broken := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("the client left")))
	for name, c := range map[string]struct {
		hash string
		size int64
		r    io.Reader
		want string
	}{
		"declared too long": {hash, 101, iotest.ErrReader(errors.New("read although it is too long")), "it has more than 100 bytes"},
		"10 GB":             {hash, 10 << 30, iotest.ErrReader(errors.New("read although it is too long")), "it has more than 100 bytes"},
		"streamed too long": {hash, -1, strings.NewReader(text + "x"), "it has more than 100 bytes"},
		"longer than said":  {hash, 3, strings.NewReader(text), "broke off"},
		"broken off":        {hash, 100, strings.NewReader("x"), "the archive broke off after 1 of 100 bytes"},
		"broken":            {hash, -1, broken, "the client left"},
		"empty":             {hash, 0, strings.NewReader(""), "the archive is empty"},
		"no hash":           {"../x", -1, strings.NewReader("x"), "not 64 hexadecimal digits"},
	} {
		if err := s.Upload(ctx, alice, c.hash, c.size, c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, name := range left(t, s.filesDir()) {
		if strings.Contains(name, "/") {
			t.Errorf("%s is left", name)
		}
	}
	has(alice, false)
	for _, size := range []int64{100, -1} {
		if err := s.Upload(ctx, alice, hash, size, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	has(alice, true)
	has(bob, false)
	if _, _, err := s.HasFiles(ctx, bob, "none", hash); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("no template: %v", err)
	}

	// All archives of a principal have a bound together, and no other's counts.
	for _, digit := range "123" {
		other := strings.Replace(hash, "aa", string(digit)+"0", 1)
		if err := s.Upload(ctx, alice, other, -1, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int64{100, -1} {
		err := s.Upload(ctx, alice, strings.Replace(hash, "aa", "ff", 1), size, strings.NewReader(text))
		if !errors.Is(err, sandbox.Exhausted) || !strings.Contains(err.Error(), "400 bytes together") {
			t.Errorf("a fifth archive: %v", err)
		}
	}
	if err := s.Upload(ctx, bob, hash, -1, strings.NewReader("x")); err != nil {
		t.Error(err)
	}

	// An archive goes by its age since its last use.
	now = now.Add(s.filesAge() - time.Minute)
	has(alice, true)
	now = now.Add(2 * time.Minute)
	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	has(alice, true)
	has(bob, false)
	now = now.Add(s.filesAge() + time.Second)
	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if names := left(t, s.filesDir()); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

// TestParallelUploads keeps the bounds while several archives arrive.
func TestParallelUploads(t *testing.T) {
	s, _ := newTest(t, func(o *Options) { o.ContextSize = 100 })
	ctx := t.Context()
	other := func(i int) string { return fmt.Sprintf("%064x", i) }
	var writers []*io.PipeWriter
	results := make(chan error, maxUploads)
	for i := range maxUploads {
		r, w := io.Pipe()
		size := int64(100)
		if i%2 == 0 {
			size = -1
		}
		go func() { results <- s.Upload(ctx, alice, other(i), size, r) }()
		// The upload has begun to read.
		if _, err := io.WriteString(w, "x"); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for _, size := range []int64{1, -1} {
		if err := s.Upload(ctx, alice, hash, size, strings.NewReader("x")); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("beyond the uploads in progress: %v", err)
		}
	}
	if err := s.Upload(ctx, bob, hash, -1, strings.NewReader("x")); err != nil {
		t.Errorf("another principal: %v", err)
	}
	// Half of them break off, and leave their room.
	for i, w := range writers {
		if i < 2 {
			w.CloseWithError(errors.New("the client left"))
			continue
		}
		if _, err := io.WriteString(w, strings.Repeat("x", 99)); err != nil {
			t.Error(err)
		}
		w.Close()
	}
	failed := 0
	for range writers {
		if err := <-results; err != nil {
			failed++
		}
	}
	if failed != 2 || len(s.uploads) > 0 {
		t.Errorf("%d uploads failed; reserved: %v", failed, s.uploads)
	}
	if err := s.Upload(ctx, alice, hash, 100, strings.NewReader(strings.Repeat("x", 100))); err != nil {
		t.Error(err)
	}
}

// TestManyUploads bounds the number of archives, but not of new uploads of one.
func TestManyUploads(t *testing.T) {
	s, _ := newTest(t, nil)
	dir := s.filesOf(alice)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range maxArchives {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%064x", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Upload(t.Context(), alice, fmt.Sprintf("%064x", maxArchives), -1, strings.NewReader("x")); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	if err := s.Upload(t.Context(), alice, fmt.Sprintf("%064x", 0), -1, strings.NewReader("x")); err != nil {
		t.Errorf("one again: %v", err)
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"app": "app ", " App:V1.0 ": "app v1.0", "a_b-c:x": "a_b-c x", "": "", "a b": "", "a/b": "", "a:": "", ":a": "", "a:b:c": "",
		"a:00000000-0000-4000-8000-000000000000": "", strings.Repeat("a", 129): "", "a:" + strings.Repeat("a", 129): "",
	} {
		name, tag, err := parseName(text)
		if got := name + " " + tag; (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	id := newBuildID()
	if !buildForm.MatchString(id) {
		t.Errorf("%s is no UUID", id)
	}
	for name, want := range map[string]string{"my_app": "my-app", "__a--b__": "a-b", "---": "unnamed"} {
		if got := imageName(name, id); got != "template.glovebox/"+want+":"+id {
			t.Errorf("%s: %s", name, got)
		}
	}
	for source, want := range map[string]string{"a": "a", "./a/b/": "a/b", "*.txt": ".", "a/*/b": "a", ".": ".", "a/[b]": "a"} {
		if got := sourceOf(source); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

// TestRequestBounds refuses what a principal may not have.
func TestRequestBounds(t *testing.T) {
	now := time.Now()
	s, _ := newTest(t, func(o *Options) { o.Now = func() time.Time { return now } })
	ctx := t.Context()
	for name, o := range map[string]Order{
		"name": {Name: "a b"}, "the server's": {Name: "base:x"}, "an ID": {Name: newTemplateID()}, "tag": {Name: "a", Tags: []string{"x y"}}, "cpus": {Name: "a", CPUs: -1}, "memory": {Name: "a", MemoryMB: 1},
	} {
		if _, _, err := s.Request(ctx, alice, o); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var last Build
	for range maxUnfinished {
		var err error
		if _, last, err = s.Request(ctx, alice, Order{Name: "app:v1", Tags: []string{"b", "a", "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"a", "b", "v1"}, last.Tags); d != "" {
		t.Errorf("tags: -want +got\n%s", d)
	}
	if _, _, err := s.Request(ctx, alice, Order{Name: "app"}); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many builds: %v", err)
	}
	// Builds whose steps never come end, and later their records go.
	now = now.Add(queueTime + time.Minute)
	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	b, err := s.Build(ctx, alice, "app", last.ID)
	if err != nil || b.Status != Failed || !strings.Contains(b.Reason, "its steps did not come") {
		t.Errorf("%+v, %v", b, err)
	}
	now = now.Add(keptFor + time.Minute)
	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if tm, builds, err := s.Get(ctx, alice, "app"); err != nil || len(builds) > 0 || tm.Name != "app" {
		t.Errorf("%v, %v, %v", tm, builds, err)
	}
	many := make([]string, maxTags+1)
	for i := range many {
		many[i] = strings.Repeat("a", i+1)
	}
	if _, _, err := s.Request(ctx, alice, Order{Name: "app", Tags: many}); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many tags: %v", err)
	}
}

func TestTags(t *testing.T) {
	s, w := newTest(t, nil)
	ctx := t.Context()
	tm, b := build(t, s, "app:v1", Plan{FromImage: "base:1"})
	if id, tags, err := s.Tag(ctx, alice, "app:v1", []string{"B", "a"}); id != b.ID || err != nil || !cmp.Equal(tags, []string{"a", "b"}) {
		t.Errorf("%s, %v, %v", id, tags, err)
	}
	for name, c := range map[string]struct {
		p      sandbox.Principal
		target string
		tags   []string
		kind   sandbox.Kind
	}{
		"another's": {bob, "app:v1", []string{"x"}, sandbox.NotFound}, "no tag": {alice, "app", []string{"x"}, sandbox.NotFound},
		"none": {alice, "app:v1", nil, sandbox.Invalid}, "wrong": {alice, "app:v1", []string{":x"}, sandbox.Invalid},
	} {
		if _, _, err := s.Tag(ctx, c.p, c.target, c.tags); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Untag(ctx, bob, "app", []string{"a"}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's tag: %v", err)
	}
	if err := s.Untag(ctx, alice, tm.ID, []string{"a", "v1"}); err != nil || len(w.made()) != 1 {
		t.Errorf("%v; images %v", err, w.made())
	}
	// With its last tag goes the image of a build.
	if err := s.Untag(ctx, alice, "app", []string{"b"}); err != nil || len(w.made()) != 0 {
		t.Errorf("%v; images %v", err, w.made())
	}
	if b, err := s.Build(ctx, alice, "app", b.ID); err != nil || b.Image != "" || b.Status != Ready {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestLogBounds(t *testing.T) {
	s, _ := newTest(t, nil)
	l := &buildLog{now: s.opts.Now}
	if err := l.open(s.logFile("x")); err != nil {
		t.Fatal(err)
	}
	l.in("1")
	write := func(text string) {
		if n, err := io.WriteString(l, text); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("half ")
	write("line\r\n\nnext")
	l.in("2")
	write(strings.Repeat("y", 3*maxLine) + "\n")
	write("\xff\n")
	for range maxEntries {
		write("more\n")
	}
	if err := l.close("why"); err != nil {
		t.Fatal(err)
	}
	entries, err := s.entries("x") // from the file
	if err != nil || !cmp.Equal(entries, l.all()) {
		t.Fatalf("%d entries in the file, %d in memory, %v", len(entries), len(l.all()), err)
	}
	if len(entries) != maxEntries+2 || entries[len(entries)-1].Message != "why" || entries[len(entries)-2].Level != Warn {
		t.Errorf("%d entries, the last %+v", len(entries), entries[len(entries)-2:])
	}
	for i, want := range []Entry{{Message: "half line", Step: "1"}, {Message: "", Step: "1"}, {Message: "next", Step: "1"}, {Message: strings.Repeat("y", maxLine), Step: "2"}, {Message: "�", Step: "2"}} {
		if got := entries[i]; got.Message != want.Message || got.Step != want.Step || got.Level != Info {
			t.Errorf("entry %d: %.80v, want %.80v", i, got, want)
		}
	}
	var big bytes.Buffer
	for big.Len() < 2*maxLog {
		big.WriteString(strings.Repeat("z", maxLine-1) + "\n")
	}
	l = &buildLog{now: s.opts.Now}
	if err := l.open(s.logFile("y")); err != nil {
		t.Fatal(err)
	}
	write(big.String())
	write(strings.Repeat(strings.Repeat("\x01", maxLine-1)+"\n", maxLog/maxLine))
	if err := l.close(""); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(s.logFile("y")); err != nil || fi.Size() > maxLog+1000 { // with the entry about the rest
		t.Errorf("%+v, %v", fi, err)
	}
	if entries, err = s.entries("y"); err != nil || len(entries) > maxLog/(maxLine-1)+1 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}
