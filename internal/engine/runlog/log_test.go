package runlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func testLogFiles(tb testing.TB) (Files, string) {
	tb.Helper()
	dir := tb.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { root.Close() })
	return Files{root, "sbx", "run"}, dir
}

// pattern returns n bytes in which every position can be told by what is there.
func pattern(stream int, from, n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		at := from + int64(i)
		p[i] = byte(at>>(8*(at%4))) ^ byte(stream*85)
	}
	return p
}

func mustAppend(tb testing.TB, l *Log, stream int, p []byte) {
	tb.Helper()
	if err := l.Append(stream, p); err != nil {
		tb.Fatal(err)
	}
}

func TestRunLogKeepsAllBelowItsBound(t *testing.T) {
	files, dir := testLogFiles(t)
	l := New(files, MinSize, nil)
	want := map[int]int64{Stdout: 5*segmentSize + 17, Stderr: 3*segmentSize - 17}
	var at [Streams]int64
	rnd := rand.New(rand.NewPCG(1, 2))
	for at[Stdout] < want[Stdout] || at[Stderr] < want[Stderr] {
		s := rnd.IntN(Streams)
		n := min(rnd.Int64N(300<<10), want[s]-at[s])
		mustAppend(t, l, s, pattern(s, at[s], n))
		at[s] += n
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	fromDisk, err := files.Extents()
	if err != nil {
		t.Fatal(err)
	}
	if fromDisk != l.Extents() {
		t.Errorf("extents %v from disk, %v in memory", fromDisk, l.Extents())
	}
	for s := range Streams {
		got, err := files.Read(s, fromDisk[s], 0, want[s]+10)
		if err != nil || !bytes.Equal(got, pattern(s, 0, want[s])) {
			t.Errorf("%s: %d bytes, %v; want %d", StreamName(s), len(got), err, want[s])
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, infoErr := d.Info(); err == nil && infoErr == nil && !d.IsDir() && info.Mode() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sbx")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestRunLogDropsTheMiddle(t *testing.T) {
	files, dir := testLogFiles(t)
	l := New(files, MinSize, nil)
	const total, some = 20*segmentSize + 12345, 2 * segmentSize
	mustAppend(t, l, Stderr, pattern(Stderr, 0, some))
	for at := int64(0); at < total; {
		n := min(int64(100_000), total-at)
		mustAppend(t, l, Stdout, pattern(Stdout, at, n))
		at += n
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	x := l.Extents()[Stdout]
	if x.Total != total || x.GapFrom != segmentSize || x.Kept() > MinSize+segmentSize-some || x.Kept() < MinSize-segmentSize-some {
		t.Errorf("%+v keeps %d", x, x.Kept())
	}
	if other := l.Extents()[Stderr]; other.Kept() != some {
		t.Errorf("the stream that wrote little keeps %d", other.Kept())
	}
	var onDisk int64
	entries, err := os.ReadDir(filepath.Join(dir, "sbx"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		onDisk += info.Size()
	}
	if onDisk != x.Kept()+some || onDisk > MinSize+segmentSize {
		t.Errorf("%d bytes on disk, want %d", onDisk, x.Kept()+some)
	}
	fromDisk, err := files.Extents()
	if err != nil || fromDisk != l.Extents() {
		t.Errorf("extents %v from disk (%v), %v in memory", fromDisk, err, l.Extents())
	}
	for _, span := range [][2]int64{{0, x.GapFrom}, {x.GapTo, x.Total}} {
		got, err := files.Read(Stdout, x, span[0], total)
		if err != nil || !bytes.Equal(got, pattern(Stdout, span[0], span[1]-span[0])) {
			t.Errorf("from %d: %d bytes, %v; want up to %d", span[0], len(got), err, span[1])
		}
	}
	for _, at := range []int64{x.GapFrom, x.GapTo - 1} {
		_, err := files.Read(Stdout, x, at, 1)
		gap, _ := errors.AsType[*sandbox.Gap](err)
		if diff := cmp.Diff(&sandbox.Gap{Stream: sandbox.Stdout, From: x.GapFrom, To: x.GapTo}, gap); diff != "" {
			t.Errorf("in the gap (-want +got):\n%s", diff)
		}
		if !errors.Is(err, sandbox.NotFound) || !strings.Contains(sandbox.HintOf(err), fmt.Sprint(x.GapTo)) {
			t.Errorf("in the gap: %v (hint %q)", err, sandbox.HintOf(err))
		}
	}
	if got, err := files.Read(Stdout, x, total, 10); err != nil || len(got) != 0 {
		t.Errorf("at the end: %d bytes, %v", len(got), err)
	}
}

func TestRunLogReopens(t *testing.T) {
	files, _ := testLogFiles(t)
	const first, second = 11*segmentSize + 100, 5*segmentSize + 7
	l := New(files, MinSize, nil)
	mustAppend(t, l, Stdout, pattern(Stdout, 0, first))
	mustAppend(t, l, Stderr, pattern(Stderr, 0, segmentSize)) // ends with its segment
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Reopen(files, MinSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, Stdout, pattern(Stdout, first, second))
	mustAppend(t, l, Stderr, pattern(Stderr, segmentSize, 5))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	xs := l.Extents()
	if xs[Stdout].Total != first+second || xs[Stdout].Kept() > MinSize+segmentSize || xs[Stderr].Total != segmentSize+5 {
		t.Errorf("%+v", xs)
	}
	got, err := files.Read(Stdout, xs[Stdout], xs[Stdout].GapTo, 1<<30)
	if err != nil || !bytes.Equal(got, pattern(Stdout, xs[Stdout].GapTo, xs[Stdout].Total-xs[Stdout].GapTo)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A reader gets every byte in order however slow it is, and the writer waits
// for it; a writer that may not wait drops, and the reader is told how much.
func TestRunLogFollow(t *testing.T) {
	const total = 12 * segmentSize
	for _, hurried := range []bool{false, true} {
		t.Run(fmt.Sprintf("Hurried=%v", hurried), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				files, _ := testLogFiles(t)
				l := New(files, MinSize, nil)
				var got bytes.Buffer
				gate := make(chan struct{})
				done := make(chan error)
				go func() {
					done <- l.Follow(t.Context(), func(s sandbox.StreamName, data []byte) error {
						<-gate
						got.Write(data)
						return nil
					})
				}()
				synctest.Wait()
				written := make(chan struct{})
				go func() {
					defer close(written)
					for at := int64(0); at < total; at += 100 << 10 {
						mustAppend(t, l, Stdout, pattern(Stdout, at, min(100<<10, total-at)))
					}
				}()
				synctest.Wait()
				select {
				case <-written:
					t.Error("the writer did not wait for the reader")
				default:
				}
				if hurried {
					l.Hurry()
					<-written
				}
				close(gate)
				<-written
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				x := l.Extents()[Stdout]
				want := pattern(Stdout, 0, total)
				if hurried {
					// It had read its first piece before the gate.
					want = slicesConcat(pattern(Stdout, 0, x.GapFrom), []byte(sandbox.NotKept(x.GapTo-x.GapFrom)), pattern(Stdout, x.GapTo, total-x.GapTo))
				}
				if x.Kept() == total || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("%d bytes, want %d; %+v", got.Len(), len(want), x)
				}
			})
		})
	}
}

func slicesConcat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestRunLogFollowKeepsTheOrder(t *testing.T) {
	files, _ := testLogFiles(t)
	l := New(files, MinSize, nil)
	var want []string
	for i := range 100 {
		s := i / 3 % 2
		text := fmt.Sprintf("%d,", i)
		mustAppend(t, l, s, []byte(text))
		want = append(want, string(StreamName(s))+" "+text)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := l.Follow(t.Context(), func(s sandbox.StreamName, data []byte) error {
		for text := range strings.SplitAfterSeq(string(data), ",") {
			if text != "" {
				got = append(got, string(s)+" "+text)
			}
		}
		return nil
	})
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v; -want +got\n%s", err, d)
	}
}

func TestRunLogFollowBeyondTheOrder(t *testing.T) {
	files, _ := testLogFiles(t)
	l := New(files, MinSize, nil)
	var want [Streams]string
	for i := range maxOrder + 1000 {
		mustAppend(t, l, i%2, []byte{byte('a' + i%26)})
		want[i%2] += string(rune('a' + i%26))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got [Streams]string
	err := l.Follow(t.Context(), func(s sandbox.StreamName, data []byte) error {
		if s == sandbox.Stdout {
			got[Stdout] += string(data)
		} else {
			got[Stderr] += string(data)
		}
		return nil
	})
	if err != nil || got != want {
		t.Errorf("%v; %d and %d bytes, want %d and %d", err, len(got[0]), len(got[1]), len(want[0]), len(want[1]))
	}
}

func TestRunLogFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, _ := testLogFiles(t)
		l := New(files, MinSize, nil)
		mustAppend(t, l, Stdout, []byte("x"))
		refused := errors.New("refused")
		if err := l.Follow(t.Context(), func(sandbox.StreamName, []byte) error { return refused }); err != refused {
			t.Errorf("%v, want the reader's own error", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Follow(ctx, func(sandbox.StreamName, []byte) error { return nil }) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if len(l.readers) != 0 {
			t.Errorf("%d readers left", len(l.readers))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkRunLogAppend(b *testing.B) {
	files, _ := testLogFiles(b)
	l := New(files, 64<<20, nil)
	p := pattern(Stdout, 0, 32<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if err := l.Append(Stdout, p); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
