package state

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// random returns n bytes that nothing compresses.
func random(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(data) // never fails
	return data
}

// related saves the state of a box whose pages are those of a base, with some that are
// moved, changed, removed and added. It returns its place, a packer, the pages and the
// bases.
func related(t *testing.T) (dir string, p *Packer, pages []byte, bases Bases) {
	t.Helper()
	top := t.TempDir()
	bases = Bases{filepath.Join(top, "bases")}
	base := random(200 * page)
	clear(base[50*page : 60*page])
	snapshot, dir := filepath.Join(top, "snapshot", "state"), filepath.Join(top, "box", "state")
	for _, place := range []string{snapshot, dir} {
		if err := os.Mkdir(filepath.Dir(place), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	saveAt(t, snapshot, base)
	from, err := Open(snapshot, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	pages = append(bytes.Clone(base[100*page:]), base[:90*page]...)
	copy(pages[10*page+5:], "changed")
	pages = append(pages, "the last page is not whole"...)
	saveAt(t, dir, pages)
	if err := bases.Share(from, "sbx_from", "pages", dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(top, "snapshot")); err != nil {
		t.Fatal(err)
	}
	return dir, &Packer{Dir: filepath.Join(top, "packing"), Based: "pages"}, pages, bases
}

func TestBase(t *testing.T) {
	dir, p, pages, bases := related(t)
	n, err := p.Pack(t.Context(), dir, testBox)
	if err != nil || n > 3*page {
		t.Fatalf("packed to %d bytes, %v; want one page, and little more", n, err)
	}
	checkContent(t, dir, pages)
	checkNothingLeft(t, p)
	if again, err := p.Pack(t.Context(), dir, testBox); err != nil || again != n {
		t.Errorf("packed again: %d, %v; want %d", again, err, n)
	}
	// The base stays as long as a state has it.
	other := filepath.Join(filepath.Dir(filepath.Dir(dir)), "other")
	if err := ShareBase(dir, other); err != nil {
		t.Fatal(err)
	}
	if err := ShareBase(other+"none", other); err != nil {
		t.Errorf("no base to share: %v", err)
	}
	for _, left := range []string{dir, other} {
		if bytes, err := bases.Bytes(); err != nil || bytes != 200*page {
			t.Errorf("the bases have %d bytes, %v", bytes, err)
		}
		if err := bases.Sweep(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(left + baseSuffix); err != nil {
			t.Fatal(err)
		}
	}
	if err := bases.Sweep(); err != nil {
		t.Fatal(err)
	}
	if bytes, err := bases.Bytes(); err != nil || bytes != 0 {
		t.Errorf("the bases of no state have %d bytes, %v", bytes, err)
	}
	if _, err := Open(dir, testBox, nil); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), baseSuffix) {
		t.Errorf("the state has lost its base: %v", err)
	}
}

// TestBaseDamaged changes bytes of the base and of a packed state, and truncates them.
func TestBaseDamaged(t *testing.T) {
	dir, p, _, _ := related(t)
	if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		s, err := Open(dir, testBox, nil)
		if err == nil {
			defer s.Close()
			if _, err = s.Files("pages"); err != nil {
				t.Fatal(err)
			}
			err = s.Verify()
		}
		if sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, path := range []string{dir + baseSuffix, filepath.Join(dir, "pages")} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 3; at < len(whole); at += max(1, len(whole)/200) {
			changed := bytes.Clone(whole)
			changed[at] ^= 0x10
			if n := at / page; path == dir+baseSuffix && (n >= 90 && n < 100 || n == 110) {
				continue // the state has not this page
			}
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			check(filepath.Base(path))
		}
		if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		check(filepath.Base(path) + " is shorter")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBaseNoFile finds other things in the place of the base.
func TestBaseNoFile(t *testing.T) {
	dir, p, _, _ := related(t)
	if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
		t.Fatal(err)
	}
	for kind, put := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(filepath.Join(dir, "pages"), path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		if err := os.Remove(dir + baseSuffix); err != nil {
			t.Fatal(err)
		}
		if err := put(dir + baseSuffix); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, testBox, nil); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("a %s in the place of the base: %v", kind, err)
		}
	}
}

// TestBaseEarlierBuild compresses a state without the base if its build reads no other.
func TestBaseEarlierBuild(t *testing.T) {
	dir, p, pages, _ := related(t)
	m, err := reading(dir, readManifest)
	if err != nil {
		t.Fatal(err)
	}
	m.Reads = FormatPacked
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil {
		t.Fatal(err)
	}
	if err := writeManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Pack(t.Context(), dir, testBox); err != nil || n < 100*page {
		t.Errorf("packed to %d bytes, %v", n, err)
	}
	if m, err := reading(dir, readManifest); err != nil || m.Format != FormatPacked || m.Based != "" {
		t.Errorf("the manifest is %+v, %v", m, err)
	}
	checkContent(t, dir, pages)
}

// TestBaseOf gives a place no base that is not as it was written, and no other one than
// it has.
func TestBaseOf(t *testing.T) {
	dir, p, pages, bases := related(t)
	before, err := os.Stat(dir + baseSuffix)
	if err != nil {
		t.Fatal(err)
	}
	share := func(place string) {
		t.Helper()
		s, err := Open(dir, testBox, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := bases.Share(s, "sbx_second", "pages", place); err != nil {
			t.Fatal(err)
		}
	}
	share(dir)
	if now, err := os.Stat(dir + baseSuffix); err != nil || !os.SameFile(before, now) {
		t.Errorf("the base was replaced: %v", err)
	}
	if _, err := p.Pack(t.Context(), dir, testBox); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(dir), "other")
	share(other)
	if _, err := os.Lstat(other + baseSuffix); !os.IsNotExist(err) {
		t.Errorf("a packed state is a base: %v", err)
	}
	checkContent(t, dir, pages)
}

func FuzzReadDifference(f *testing.F) {
	base := random(4 * page)
	path := filepath.Join(f.TempDir(), "base")
	if err := os.WriteFile(path, base, 0o600); err != nil {
		f.Fatal(err)
	}
	var whole bytes.Buffer
	with, err := os.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer with.Close()
	if err := writeDifference(&whole, io.MultiReader(bytes.NewReader(base[page:]), strings.NewReader("more")), with, make([]byte, 2*page)); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(binary.AppendUvarint(binary.AppendUvarint(nil, 1<<63|1), 1<<63))
	f.Add(binary.AppendUvarint(nil, 1<<63))
	f.Fuzz(func(t *testing.T, pieces []byte) {
		const limit = 8 * page
		var out bytes.Buffer
		err := readDifference(&out, bytes.NewReader(pieces), with, limit, make([]byte, page))
		if out.Len() > limit {
			t.Errorf("%d bytes were written, and %v", out.Len(), err)
		}
		if bytes.Equal(pieces, whole.Bytes()) && (err != nil || !bytes.Equal(out.Bytes(), append(bytes.Clone(base[page:]), "more"...))) {
			t.Errorf("%d bytes were read, %v", out.Len(), err)
		}
	})
}
