package state

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// steps are the steps of Pack, except those of the files.
var steps = []string{"kernel", "pages", "manifest", "exchange", "remove"}

// big saves a state whose pages have data, a hole, data, and a hole at the end. It
// returns its place and a packer.
func big(t *testing.T) (dir string, p *Packer, pages []byte) {
	t.Helper()
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "box"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "box", "state")
	pages = make([]byte, 3<<20)
	copy(pages, bytes.Repeat([]byte("page"), 100_000))
	copy(pages[2<<20+100:], "alone")
	saveAt(t, dir, pages)
	return dir, &Packer{Dir: filepath.Join(base, "packing")}, pages
}

// saveAt saves a state with a kernel and those pages.
func saveAt(t *testing.T, dir string, pages []byte) {
	t.Helper()
	w, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, data := range map[string][]byte{"kernel": []byte("the kernel"), "pages": pages} {
		f, err := w.Create(name, int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(Manifest{Box: testBox, Key: Key{Program: "p"}}); err != nil {
		t.Fatal(err)
	}
}

// checkContent fails the test if the state does not have the contents of big.
func checkContent(t *testing.T, dir string, pages []byte) {
	t.Helper()
	s, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	files, err := s.Files("kernel", "pages")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]byte{[]byte("the kernel"), pages} {
		var got bytes.Buffer
		if _, err := got.ReadFrom(files[i]); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("file %d has %d bytes, %v; want %d as they were written", i, got.Len(), err, len(want))
		}
	}
}

// checkNothingLeft fails the test if a packer has left something.
func checkNothingLeft(t *testing.T, p *Packer) {
	t.Helper()
	entries, err := os.ReadDir(p.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
		t.Errorf("left in the packer's directory: %v, %v", entries, err)
	}
}

func TestPack(t *testing.T) {
	dir, p, pages := big(t)
	before, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	n, err := p.Pack(t.Context(), dir, testBox)
	if err != nil {
		t.Fatal(err)
	}
	var onDisk int64
	for _, name := range []string{"kernel", "pages"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Mode() != 0o600 {
			t.Fatalf("%s: %v, %v", name, fi, err)
		}
		onDisk += fi.Size()
	}
	if n != onDisk || n > int64(len(pages))/50 {
		t.Errorf("Pack returns %d bytes, and the files have %d", n, onDisk)
	}
	checkContent(t, dir, pages)
	checkNothingLeft(t, p)
	// A wake that opened the state before it was packed still has its files.
	if err := before.Verify(); err != nil {
		t.Error(err)
	}
	s, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Bytes() != n {
		t.Errorf("a packed state has %d bytes; want %d", s.Bytes(), n)
	}
	files, err := s.Files("pages")
	if err != nil || s.Verify() != nil {
		t.Fatal(err, s.Verify())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(files[0].Fd()), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("unpacked pages of 400 kB and holes take %d bytes of the disk, %v", st.Blocks*512, err)
	}
	if again, err := p.Pack(t.Context(), dir, testBox); err != nil || again != n {
		t.Errorf("packed again: %d, %v; want %d", again, err, n)
	}
	if err := s.Use(); err != nil || s.PutBack() != nil {
		t.Fatal(err)
	}
	checkContent(t, dir, pages)
}

// TestPackEarlierBuild leaves the state of a build alone that reads no packed ones.
func TestPackEarlierBuild(t *testing.T) {
	dir, p, pages := big(t)
	s, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := *s.Manifest
	m.Reads = 0
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil {
		t.Fatal(err)
	}
	if err := writeManifest(dir, &m); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Pack(t.Context(), dir, testBox); err != nil || n < int64(len(pages)) {
		t.Errorf("Pack returns %d, %v", n, err)
	}
	if m, err := reading(dir, readManifest); err != nil || m.Format != Format || m.Packed != nil {
		t.Errorf("the manifest is %+v, %v", m, err)
	}
	checkContent(t, dir, pages)
}

// TestPackFails has each step fail. The state is usable afterwards, and nothing else is
// left.
func TestPackFails(t *testing.T) {
	for _, at := range steps {
		dir, p, pages := big(t)
		full := sandbox.NoSpace(unix.ENOSPC)
		p.step = func(name string) error {
			if name == at {
				return full
			}
			return nil
		}
		if _, err := p.Pack(t.Context(), dir, testBox); !errors.Is(err, full) && at != "remove" {
			t.Errorf("step %s: %v", at, err)
		}
		checkNothingLeft(t, p)
		checkContent(t, dir, pages)
		p.step = nil
		if n, err := p.Pack(t.Context(), dir, testBox); err != nil || n > int64(len(pages))/50 {
			t.Errorf("after step %s failed: %d bytes, %v", at, n, err)
		}
		checkContent(t, dir, pages)
	}
	dir, p, pages := big(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Pack(ctx, dir, testBox); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	checkNothingLeft(t, p)
	checkContent(t, dir, pages)
}

// killedEnv has the test program pack a state, for TestPackKilled: it has the place, the
// packer's directory and the step, separated by colons.
const killedEnv = "GLOVEBOX_TEST_PACK"

// TestPackKilled kills the packer's process at each step.
func TestPackKilled(t *testing.T) {
	if order := os.Getenv(killedEnv); order != "" {
		parts := strings.Split(order, ":")
		p := &Packer{Dir: parts[1], step: func(name string) error {
			if name == parts[2] {
				return unix.Kill(os.Getpid(), unix.SIGKILL)
			}
			return nil
		}}
		_, err := p.Pack(t.Context(), parts[0], testBox)
		t.Fatalf("it lives, and Pack returns %v", err)
	}
	for _, at := range steps {
		dir, p, pages := big(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestPackKilled$")
		cmd.Env = append(os.Environ(), killedEnv+"="+strings.Join([]string{dir, p.Dir, at}, ":"))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("killed at step %s: %v\n%s", at, err, out)
		}
		if Interrupted(dir) || Locked(dir) {
			t.Errorf("killed at step %s: interrupted %t, locked %t", at, Interrupted(dir), Locked(dir))
		}
		checkContent(t, dir, pages)
		if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
			t.Errorf("after a kill at step %s: %v", at, err)
		}
		checkNothingLeft(t, p)
		checkContent(t, dir, pages)
	}
}

// TestPackUsed uses a state at each step: the use wins.
func TestPackUsed(t *testing.T) {
	use := func(t *testing.T, dir string) *State {
		t.Helper()
		s, err := Open(dir, testBox, nil)
		if err == nil {
			err = errors.Join(s.Verify(), s.Use())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	uses := map[string]func(t *testing.T, dir string){
		"woken": func(t *testing.T, dir string) { s := use(t, dir); defer s.Close(); s.Remove() },
		"destroyed": func(t *testing.T, dir string) {
			if err := RemoveAll(filepath.Dir(dir), dir); err != nil {
				t.Error(err)
			}
		},
		"saved again": func(t *testing.T, dir string) {
			s := use(t, dir)
			s.Remove()
			s.Close()
			w, err := New(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.Create("another", 1); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(Manifest{Box: testBox}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for what, f := range uses {
		for _, at := range append([]string{"before"}, steps[:len(steps)-1]...) {
			dir, p, _ := big(t)
			if at == "before" {
				if what == "saved again" {
					continue
				}
				f(t, dir)
			}
			p.step = func(name string) error {
				if name == at {
					f(t, dir)
				}
				return nil
			}
			_, err := p.Pack(t.Context(), dir, testBox)
			if sandbox.KindOf(err) != sandbox.Conflict || !strings.HasPrefix(err.Error(), "the state was used") {
				t.Errorf("%s at step %s: %v; want a conflict", what, at, err)
			}
			checkNothingLeft(t, p)
			if what != "saved again" {
				if Exists(dir) || Interrupted(dir) {
					t.Errorf("%s at step %s: there is a state again", what, at)
				}
			} else if s, err := Open(dir, testBox, nil); err != nil || s.files["another"] == nil {
				t.Errorf("%s at step %s: the new state is lost: %v", what, at, err)
			} else {
				s.Close()
			}
		}
	}
}

// TestPackWhileRead opens, verifies and uses a state again and again while it is packed.
func TestPackWhileRead(t *testing.T) {
	for range 8 {
		dir, p, pages := big(t)
		packed := make(chan error, 1)
		go func() {
			_, err := p.Pack(context.Background(), dir, testBox)
			packed <- err
		}()
		for range 5 {
			checkContent(t, dir, pages)
			s, err := Open(dir, testBox, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Use(), s.PutBack()); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		if err := <-packed; err != nil && sandbox.KindOf(err) != sandbox.Conflict {
			t.Fatal(err)
		}
		checkContent(t, dir, pages)
	}
}

// TestPackOther refuses to pack while another process packs a state.
func TestPackOther(t *testing.T) {
	dir, p, _ := big(t)
	turn, err := p.begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pack(t.Context(), dir, testBox); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("packed while another process packs: %v", err)
	}
	turn.Close()
	if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
		t.Error(err)
	}
}

// TestPackDamaged changes a state before and after it is packed.
func TestPackDamaged(t *testing.T) {
	dir, p, pages := big(t)
	path := filepath.Join(dir, "pages")
	changed := bytes.Clone(pages)
	changed[0] ^= 1
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pack(t.Context(), dir, testBox); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("packed a damaged state: %v", err)
	}
	if err := os.WriteFile(path, pages, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += max(1, len(whole)/30) {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		for what, data := range map[string][]byte{"flipped": flipped, "cut": whole[:at], "extended": append(bytes.Clone(whole), whole[:at+1]...)} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := verify(dir); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
				t.Errorf("%s at %d: %v; want unavailable, with a hint", what, at, err)
			}
		}
	}
}

func TestSparse(t *testing.T) {
	f, err := unnamedIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	full, empty, part := bytes.Repeat([]byte("x"), page), make([]byte, page), []byte("end")
	blocks := [][]byte{empty, full, full, empty, empty, full, part}
	out := &sparse{f: f}
	for _, data := range [][]byte{slices.Concat(blocks[:3]...), slices.Concat(blocks[3:]...)} {
		if _, err := out.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.end(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7*page)
	n, _ := f.ReadAt(got, 0)
	if !bytes.Equal(got[:n], slices.Concat(blocks...)) {
		t.Errorf("%d bytes, which are not those that were written", n)
	}
}

// TestPackWhileRemoved: a state whose files vanish one after another is not reported as
// damaged.
func TestPackWhileRemoved(t *testing.T) {
	for range 300 {
		base := t.TempDir()
		box := filepath.Join(base, "box")
		dir := filepath.Join(box, "state")
		if err := os.Mkdir(box, 0o700); err != nil {
			t.Fatal(err)
		}
		saveAt(t, dir, make([]byte, 4<<10))
		p := &Packer{Dir: filepath.Join(base, "packing")}
		packed := make(chan error, 1)
		go func() {
			_, err := p.Pack(context.Background(), dir, testBox)
			packed <- err
		}()
		time.Sleep(rand.N(time.Millisecond))
		if err := RemoveAll(box, dir); err != nil {
			t.Fatal(err)
		}
		if err := <-packed; err != nil && sandbox.KindOf(err) != sandbox.Conflict {
			t.Fatal(err)
		}
		if _, err := os.Stat(box); !os.IsNotExist(err) {
			t.Fatalf("the directory of the box: %v", err)
		}
	}
}
