package snapfiles

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// long is an archive that is larger than the memory of the decompression.
const long = 2 * maxMemory

// zeros returns an archive of n zero bytes.
func zeros(n int64) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeroReader{}, n)), nil }
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func testKeeper(t *testing.T, encrypt bool) *Keeper {
	t.Helper()
	return &Keeper{Dir: filepath.Join(t.TempDir(), "snapshots"), Key: sealed.Key(bytes.Repeat([]byte{1}, sealed.KeySize)), Encrypt: encrypt}
}

// TestKeeper reads what was kept, and finds every change of it.
func TestKeeper(t *testing.T) {
	for name, encrypt := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			k, id := testKeeper(t, encrypt), sandbox.NewID()
			if k.Has(id) {
				t.Error("there is a snapshot before the first")
			}
			m := Manifest{Root: "root", Workspace: true}
			bytes, err := k.Take(id, m, long, zeros(long))
			if err != nil || bytes <= 0 {
				t.Fatalf("%d bytes, %v", bytes, err)
			}
			if _, err := k.Take(id, m, long, zeros(1)); sandbox.KindOf(err) != sandbox.Conflict {
				t.Errorf("the same snapshot again: %v, want a conflict", err)
			}
			read := func() (int64, error) {
				f, err := k.Open(id)
				if err != nil {
					return 0, err
				}
				defer f.Close()
				if f.Manifest != m {
					t.Errorf("the manifest is %+v, want %+v", f.Manifest, m)
				}
				return io.Copy(io.Discard, f)
			}
			if n, err := read(); n != long || err != nil {
				t.Errorf("read %d bytes, %v, want %d", n, err, int64(long))
			}
			file := filepath.Join(k.Dir, id, archiveName)
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
				changed := append([]byte(nil), whole...)
				changed[at] ^= 1
				if err := os.WriteFile(file, changed, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := read(); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
					t.Errorf("byte %d of %d changed: %v, want unavailable, with a hint", at, len(whole), err)
				}
			}
			if err := os.WriteFile(file, whole[:len(whole)-1], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := read(); sandbox.KindOf(err) != sandbox.Unavailable {
				t.Errorf("a byte less: %v, want unavailable", err)
			}
		})
	}
}

// TestTakeFails leaves nothing after a failure.
func TestTakeFails(t *testing.T) {
	k := testKeeper(t, false)
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		id   string
		pack func() (io.ReadCloser, error)
		want error
	}{
		"no archive": {sandbox.NewID(), func() (io.ReadCloser, error) { return nil, broken }, broken},
		"half an archive": {sandbox.NewID(), func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{broken})), nil
		}, broken},
		"too long":      {sandbox.NewID(), zeros(11), sandbox.Exhausted},
		"no identifier": {"../other", zeros(1), sandbox.Invalid},
	} {
		if _, err := k.Take(test.id, Manifest{}, 10, test.pack); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if k.Has(test.id) {
			t.Errorf("%s: there is a snapshot", name)
		}
		if name == "no identifier" {
			continue
		}
		if _, err := k.Hold(10, test.pack); !errors.Is(err, test.want) {
			t.Errorf("%s: hold: %v, want %v", name, err, test.want)
		}
	}
	if left, err := os.ReadDir(k.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestHold keeps files without a name.
func TestHold(t *testing.T) {
	k := testKeeper(t, true)
	f, err := k.Hold(long, zeros(long))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := os.ReadDir(k.Dir); err != nil || len(left) > 0 {
		t.Errorf("files with a name: %v, %v", left, err)
	}
	if n, err := io.Copy(io.Discard, f); n != long || err != nil {
		t.Errorf("read %d bytes, %v, want %d", n, err, int64(long))
	}
}

func TestCheckFits(t *testing.T) {
	with, without := &driver.Spec{Workspace: "/w"}, &driver.Spec{}
	for _, test := range []struct {
		m    Manifest
		spec *driver.Spec
		root string
		fits bool
	}{
		{Manifest{}, without, "", true},
		{Manifest{Root: "r", Workspace: true}, with, "r", true},
		{Manifest{Root: "r"}, without, "", false},
		{Manifest{}, with, "", false},
		{Manifest{Workspace: true}, without, "", false},
	} {
		err := test.m.CheckFits(test.spec, test.root)
		if (err == nil) != test.fits || err != nil && (sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "") {
			t.Errorf("%+v, %q: %v, want fits %v", test.m, test.root, err, test.fits)
		}
	}
}
