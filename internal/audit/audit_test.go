package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func open(t *testing.T, o Options) *Log {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func add(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(Record{Action: RunStart, Principal: "token:a", Outcome: OK, Detail: map[string]string{"i": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func verified(t *testing.T, dir string, want int64) Report {
	t.Helper()
	r, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Last.Seq != want {
		t.Fatalf("%+v, want the last record %d", r, want)
	}
	return r
}

func TestAppend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, Options{Dir: dir})
	if r := verified(t, dir, 0); r.Records != 0 {
		t.Errorf("an empty log: %+v", r)
	}
	add(t, l, 3)
	first := verified(t, dir, 3)
	// Another handle, as of another process, continues, and so does the first one.
	add(t, open(t, Options{Dir: dir}), 2)
	add(t, l, 1)
	if r := verified(t, dir, 6); r.Records != 6 || r.First != 1 || r.Files != 1 {
		t.Errorf("%+v", r)
	}
	mark, err := ParseMark(first.Last.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, mark); err != nil {
		t.Error(err)
	}
	mark.Seq = 2
	var broken *Broken
	if _, err := Verify(dir, mark); !errors.As(err, &broken) || !strings.Contains(err.Error(), "mark") {
		t.Errorf("a mark of another record: %v", err)
	}
	mark.Seq = 99
	if _, err := Verify(dir, mark); !errors.As(err, &broken) {
		t.Errorf("a mark of a missing record: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, currentName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestParseMark(t *testing.T) {
	for _, bad := range []string{"", "1", "1:", "0:" + strings.Repeat("0", 64), "x:" + strings.Repeat("0", 64), "1:" + strings.Repeat("0", 63), "1:" + strings.Repeat("g", 64)} {
		if _, err := ParseMark(bad); !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	long := strings.Repeat("ü\x00\n\"", 10_000) + "\xff"
	detail := map[string]string{}
	for i := range 100 {
		detail[fmt.Sprint(i, long)] = long
	}
	line, err := l.Append(Record{Action: FileRead, Principal: sandbox.Principal(long), From: long, Sandbox: long, Run: long, Token: long, Outcome: long, Detail: detail})
	if err != nil || len(line) > maxLine || bytes.Contains(line, []byte("\n")) || !utf8.Valid(line) {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	add(t, l, 1)
	verified(t, dir, 2)
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, FileSize: 1000})
	other := open(t, Options{Dir: dir, FileSize: 1000})
	for range 20 {
		add(t, l, 1)
		add(t, other, 2)
	}
	r := verified(t, dir, 60)
	if r.Files < 5 || r.First != 1 {
		t.Fatalf("%+v", r)
	}
	n := int64(0)
	if err := Read(dir, func(r Record) bool { n++; return r.Seq == n }); err != nil || n != 60 {
		t.Errorf("read %d records, %v", n, err)
	}
	// A process that keeps three files removes the others with a record.
	add(t, open(t, Options{Dir: dir, FileSize: 1000, Keep: 3}), 10)
	r, err := Verify(dir)
	if err != nil || r.Files != 4 || r.First == 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	pruned := false
	if err := Read(dir, func(r Record) bool { pruned = pruned || r.Action == LogPrune; return true }); err != nil || !pruned {
		t.Errorf("no record of the removal, %v", err)
	}
	add(t, l, 1)
	verified(t, dir, r.Last.Seq+1)
}

// Changes of single bytes, and every missing or doubled line, are found.
func TestTampering(t *testing.T) {
	made := t.TempDir()
	l := open(t, Options{Dir: made, FileSize: 600})
	add(t, l, 6)
	verified(t, made, 6)
	files, err := filepath.Glob(filepath.Join(made, "*.jsonl"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	tampered := func(name, file string, data []byte) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file)
		err := os.Remove(path)
		if data != nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(dir); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(path)
		for i := 0; i < len(data); i += 23 {
			changed := bytes.Clone(data)
			changed[i] ^= 1
			tampered(fmt.Sprintf("byte %d of %s", i, base), base, changed)
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		for i, line := range lines[:len(lines)-1] {
			tampered(fmt.Sprintf("%s without line %d", base, i), base, bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil))
			tampered(fmt.Sprintf("%s with line %d twice", base, i), base, bytes.Join(append(append([][]byte{}, lines[:i+1]...), append([][]byte{line}, lines[i+1:]...)...), nil))
		}
		tampered(base+" removed", base, nil)
	}
	tampered("everything removed but the last file and its head", filepath.Base(files[0]), nil)
	tampered("head removed", headName, nil)
	tampered("head empty", headName, []byte{})
}

// A process may be killed after any byte of a record, and before or after the head.
func TestKilled(t *testing.T) {
	made := t.TempDir()
	l := open(t, Options{Dir: made})
	add(t, l, 2)
	head, err := os.ReadFile(filepath.Join(made, headName))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(made, currentName))
	if err != nil {
		t.Fatal(err)
	}
	add(t, l, 1)
	whole, err := os.ReadFile(filepath.Join(made, currentName))
	if err != nil {
		t.Fatal(err)
	}
	for end := before.Size(); end <= int64(len(whole)); end++ {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, headName), head, 0o600), os.WriteFile(filepath.Join(dir, currentName), whole[:end], 0o600)); err != nil {
			t.Fatal(err)
		}
		want := int64(2)
		if end == int64(len(whole)) {
			want = 3
		}
		verified(t, dir, want)
		add(t, open(t, Options{Dir: dir}), 1)
		verified(t, dir, want+1)
	}
}

// A log that was cut goes on, and every later Verify finds the gap.
func TestCut(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	add(t, l, 3)
	if err := os.Truncate(filepath.Join(dir, currentName), 0); err != nil {
		t.Fatal(err)
	}
	add(t, l, 2)
	var broken *Broken
	if r, err := Verify(dir); !errors.As(err, &broken) || !errors.Is(err, sandbox.Conflict) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		l := open(t, Options{Dir: dir, FileSize: 4000})
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if _, err := l.Append(Record{Action: RunStart, Outcome: OK}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Go(func() {
		for range 20 {
			if _, err := Verify(dir); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	verified(t, dir, 320)
}

func TestNoLog(t *testing.T) {
	if _, err := Verify(filepath.Join(t.TempDir(), "none")); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
}

func TestTokenVerified(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1_800_000_000, 0)
	r := NewRecorder(RecorderOptions{Log: open(t, Options{Dir: dir}), Slog: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	ctx := auth.WithRemote(context.Background(), "192.0.2.1:1000", false)
	refused := sandbox.Errorf(sandbox.Unauthenticated, "no")
	for range 50 {
		r.TokenVerified(ctx, auth.Identity{Principal: "token:a", Token: "tok_1"}, nil)
		r.TokenVerified(ctx, auth.Identity{}, refused)
	}
	now = now.Add(2 * time.Minute)
	r.TokenVerified(ctx, auth.Identity{}, refused)
	for i := range maxSeen + 1000 { // a flood from many addresses
		r.TokenVerified(auth.WithRemote(ctx, fmt.Sprintf("[2001:db8:0:%x::1]:1", i), false), auth.Identity{}, refused)
	}
	before := len(r.seen)
	for i := range 50 { // one site has all addresses of a network of 64 bits
		r.TokenVerified(auth.WithRemote(ctx, fmt.Sprintf("2001:db8:ffff:1::%x", i), true), auth.Identity{}, refused)
	}
	if len(r.seen) > before+1 {
		t.Errorf("50 addresses of one network have %d periods", len(r.seen)-before)
	}
	r.Flush()
	count, uses, more := map[Action]int{}, 0, ""
	if err := Read(dir, func(r Record) bool {
		count[r.Action]++
		if r.Action == TokenUse {
			uses++
		}
		if r.Action == TokenRefuse && more == "" {
			more = r.Detail["more"]
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if uses != 2 || count[TokenRefuse] > maxSeen+10 || more != "49" {
		t.Errorf("%d uses, %v, %q more", uses, count, more)
	}
	if len(r.seen) > maxSeen+2 {
		t.Errorf("%d periods are kept", len(r.seen))
	}
	verified(t, dir, int64(count[TokenUse]+count[TokenRefuse]))
}

func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	l, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	for range 3 {
		if _, err := l.Append(Record{Action: RunStart, Outcome: OK}); err != nil {
			f.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, currentName))
	if err != nil {
		f.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(dir, headName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, head)
	f.Add([]byte("{}\n"), []byte("x"))
	f.Fuzz(func(t *testing.T, text, top []byte) {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, currentName), text, 0o600), os.WriteFile(filepath.Join(dir, headName), top, 0o600)); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(dir); err == nil && bytes.Equal(top, head) && !bytes.Equal(text, data) && r.Last.Seq == 3 && !bytes.HasPrefix(text, data) {
			t.Errorf("another text has the same head: %q", text)
		}
		l, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.Append(Record{Action: RunStart, Outcome: OK}); err != nil && !errors.Is(err, sandbox.Unavailable) {
			t.Error(err)
		}
	})
}

// TestLast reads the latest records over the borders of files.
func TestLast(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, FileSize: 2000, Keep: 100})
	add(t, l, 50)
	all := []int64{}
	if err := Read(dir, func(r Record) bool { all = append(all, r.Seq); return true }); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	for _, n := range []int{1, 5, 30, 1000} {
		list, err := Last(dir, n, func(Record) bool { return true })
		if err != nil || len(list) != min(n, len(all)) {
			t.Fatalf("%d of the latest: %d, %v", n, len(list), err)
		}
		for i, r := range list {
			if r.Seq != all[i] {
				t.Fatalf("record %d is number %d, not %d", i, r.Seq, all[i])
			}
		}
	}
	if list, err := Last(dir, 3, func(r Record) bool { return r.Seq%2 == 0 }); err != nil || len(list) != 3 || list[2].Seq%2 != 0 {
		t.Errorf("even records: %v, %v", list, err)
	}
}
