package state

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

var testKey, otherKey = sealed.Key(bytes.Repeat([]byte{1}, sealed.KeySize)), sealed.Key(bytes.Repeat([]byte{2}, sealed.KeySize))

// The contents of an encrypted state, and a name in its manifest.
var sealedFiles = map[string]string{"kernel": "objects of the kernel", "pages": strings.Repeat("a page of memory", 40_000)}

const sealedName = "/data/a-name-that-is-private"

// writtenSealed saves an encrypted state of a box.
func writtenSealed(t *testing.T, box string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	w, err := New(dir, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, text := range sealedFiles {
		f, err := w.Create(name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir+newSuffix, name)); err == nil {
			t.Errorf("%s is on the disk before it is encrypted", name)
		}
	}
	if err := w.Commit(Manifest{Box: box, Key: Key{Program: "p"}, Needed: []string{sealedName}}); err != nil {
		t.Fatal(err)
	}
	if n := w.Bytes(); n <= 0 || n > 60_000 {
		t.Errorf("the state has %d bytes", n)
	}
	return dir
}

// openSealed opens a state as a restore does, and reads its contents.
func openSealed(dir, box string, key sealed.Key) (map[string]string, error) {
	s, err := Open(dir, box, key)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	files, err := s.Files("kernel", "pages")
	if err != nil {
		return nil, err
	}
	if err := s.Verify(); err != nil {
		return nil, err
	}
	contents := map[string]string{}
	for i, name := range []string{"kernel", "pages"} {
		var got bytes.Buffer
		if _, err := got.ReadFrom(files[i]); err != nil {
			return nil, err
		}
		contents[name] = got.String()
	}
	if len(s.Manifest.Needed) != 1 || s.Manifest.Needed[0] != sealedName {
		return nil, errors.New("the manifest has lost its names")
	}
	return contents, nil
}

func TestSealedState(t *testing.T) {
	dir := writtenSealed(t, testBox)
	got, err := openSealed(dir, testBox, testKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range sealedFiles {
		if got[name] != want {
			t.Errorf("%s has %d bytes, which are not those that were written", name, len(got[name]))
		}
	}
	var total int64
	for _, name := range []string{"kernel", "pages", manifestName} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"objects of the kernel", "a page of memory", sealedName} {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s has %q in the clear", name, text)
			}
		}
		if name != manifestName {
			total += int64(len(data))
		}
	}
	if n, k, err := BytesAt(dir, testBox); err != nil || n != total || k.Program != "p" {
		t.Errorf("without the key: %d bytes, %+v, %v; want %d", n, k, err, total)
	}
	p := &Packer{Dir: filepath.Join(t.TempDir(), "packing")}
	if n, err := p.Pack(t.Context(), dir, testBox); err != nil || n != total {
		t.Errorf("packed: %d bytes, %v; want it left as it is", n, err)
	}
	// A restore has the contents in memory, not on the disk.
	s, err := Open(dir, testBox, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	files, err := s.Files("pages")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(files[0].Fd(), unix.F_GET_SEALS, 0); err != nil {
		t.Errorf("the decrypted pages are not in a file in memory: %v", err)
	}
}

// TestSealedRefused changes an encrypted state, and uses it elsewhere.
func TestSealedRefused(t *testing.T) {
	refused := func(what, dir, box string, key sealed.Key, says string) {
		t.Helper()
		_, err := openSealed(dir, box, key)
		if sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v (hint: %s); want unavailable, with %q", what, err, sandbox.HintOf(err), says)
		}
	}
	a, b, earlier := writtenSealed(t, testBox), writtenSealed(t, "sbx_b"), writtenSealed(t, testBox)
	refused("no key", a, testBox, nil, "has no key")
	refused("another key", a, testBox, otherKey, "another key")
	refused("another box's place", a, "sbx_b", testKey, "another sandbox")
	for _, name := range []string{"kernel", "pages", manifestName} {
		path := filepath.Join(a, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(data []byte) {
			t.Helper()
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for at := 0; at < len(whole); at += max(1, len(whole)/40) {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 0x20
			put(flipped)
			refused("a flipped byte of "+name, a, testBox, testKey, "damaged")
		}
		for _, other := range []string{b, earlier} {
			data, err := os.ReadFile(filepath.Join(other, name))
			if err != nil {
				t.Fatal(err)
			}
			put(data)
			_, err = openSealed(a, testBox, testKey)
			if sandbox.KindOf(err) != sandbox.Unavailable {
				t.Errorf("%s of another state: %v", name, err)
			}
		}
		put(whole)
	}
	// The same, by an attacker who makes the sums of the manifest fit: the box in it.
	m, err := reading(b, readManifest)
	if err != nil {
		t.Fatal(err)
	}
	m.Box = testBox
	if err := errors.Join(os.Remove(filepath.Join(b, manifestName)), writeManifest(b, m)); err != nil {
		t.Fatal(err)
	}
	refused("a state that claims another box", b, testBox, testKey, "damaged")
	if _, err := openSealed(a, testBox, testKey); err != nil {
		t.Errorf("the whole state: %v", err)
	}
}

// TestSealedNames has the files of a state open under their own name only, also if their
// lengths and checksums fit.
func TestSealedNames(t *testing.T) {
	dir := writtenSealed(t, testBox)
	s, err := Open(dir, testBox, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.files["kernel"], s.files["pages"] = s.files["pages"], s.files["kernel"]
	if err := s.Verify(); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("with its files exchanged: %v", err)
	}
}

// TestPlainWithKey opens a state that was saved before states were encrypted.
func TestPlainWithKey(t *testing.T) {
	s, err := Open(written(t), testBox, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

// TestNoMemory asks for more memory than any machine has.
func TestNoMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	w, err := New(dir, testKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create("pages", 1<<55); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Errorf("a file in memory that is too large: %v", err)
	}
	if err := w.Discard(); err != nil || Interrupted(dir) {
		t.Errorf("a save without memory left something: %v", err)
	}
}
