package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func testKey(b byte) Key { return bytes.Repeat([]byte{b}, KeySize) }

func seal(t testing.TB, content []byte, key Key, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, key, names...)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(content, 50_001) {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unseal returns what it could read before an error, which is nil at the end.
func unseal(data []byte, key Key, names ...string) ([]byte, error) {
	r, err := NewReader(bytes.NewReader(data), key, names...)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func content(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	return data
}

// sizes are around the bounds of chunks.
var sizes = []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize, 3*chunkSize + 17}

func TestSealed(t *testing.T) {
	for _, n := range sizes {
		want := content(n)
		data := seal(t, want, testKey(1), "sbx_a", "pages")
		if got, err := unseal(data, testKey(1), "sbx_a", "pages"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if n > 16 && bytes.Contains(data, want[:16]) {
			t.Error("the content is in the sealed file")
		}
		if again := seal(t, want, testKey(1), "sbx_a", "pages"); n > 0 && bytes.Equal(again[len(magic)+saltSize:], data[len(magic)+saltSize:]) {
			t.Error("two files with one content are equal")
		}
	}
}

// TestRefused changes sealed files. No byte is returned that was not sealed at its place.
func TestRefused(t *testing.T) {
	const whole = chunkSize + 16 // a chunk and its tag
	head := len(magic) + saltSize
	for _, n := range sizes {
		want := content(n)
		data := seal(t, want, testKey(1), "sbx_a", "pages")
		refused := func(what string, data []byte, key Key, names ...string) {
			t.Helper()
			got, err := unseal(data, key, names...)
			if !errors.Is(err, ErrDamaged) || sandbox.KindOf(err) != sandbox.Unavailable {
				t.Errorf("%d bytes, %s: %v; want ErrDamaged", n, what, err)
			}
			if !bytes.HasPrefix(want, got) {
				t.Errorf("%d bytes, %s: returned what was not sealed there", n, what)
			}
		}
		refused("another key", data, testKey(2), "sbx_a", "pages")
		refused("another file", data, testKey(1), "sbx_a", "kernel")
		refused("another sandbox", data, testKey(1), "sbx_b", "pages")
		refused("names divided elsewhere", data, testKey(1), "sbx_ap", "ages")
		refused("no names", data, testKey(1))
		for at := 0; at < len(data); at += max(1, len(data)/60) {
			flipped := bytes.Clone(data)
			flipped[at] ^= 4
			refused(fmt.Sprintf("flipped at %d", at), flipped, testKey(1), "sbx_a", "pages")
			refused(fmt.Sprintf("cut at %d", at), data[:at], testKey(1), "sbx_a", "pages")
		}
		for _, more := range []int{1, 16, whole} {
			refused("extended by zeros", append(bytes.Clone(data), make([]byte, more)...), testKey(1), "sbx_a", "pages")
		}
		refused("itself added", append(bytes.Clone(data), data[head:]...), testKey(1), "sbx_a", "pages")
		if n <= chunkSize {
			continue
		}
		first, rest := data[head:head+whole], data[head+whole:]
		refused("without its first chunk", slices.Concat(data[:head], rest), testKey(1), "sbx_a", "pages")
		refused("with its first chunk twice", slices.Concat(data[:head], first, first, rest), testKey(1), "sbx_a", "pages")
		refused("cut after a chunk", data[:head+whole], testKey(1), "sbx_a", "pages")
		if n > 2*chunkSize {
			second := data[head+whole : head+2*whole]
			refused("with chunks exchanged", slices.Concat(data[:head], second, first, data[head+2*whole:]), testKey(1), "sbx_a", "pages")
		}
		other := seal(t, want, testKey(1), "sbx_a", "pages")
		refused("with a chunk of another seal", slices.Concat(data[:head], other[head:head+whole], rest), testKey(1), "sbx_a", "pages")
	}
}

// TestEmptyLast refuses an empty chunk after full ones, which no Writer makes.
func TestEmptyLast(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	w.chunk = content(chunkSize)
	w.flush()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unseal(out.Bytes(), testKey(1)); !errors.Is(err, ErrDamaged) {
		t.Errorf("an empty last chunk: %v", err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a complete file was written to")
	}
}

func TestKey(t *testing.T) {
	a, _ := testKey(1).ID()
	b, _ := testKey(2).ID()
	if a == b || len(a) != 16 {
		t.Errorf("the keys have the identifiers %s and %s", a, b)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", testKey(7), testKey(7), testKey(7), testKey(7)); text != "(key) (key) (key) (key)" {
		t.Errorf("a key is written as %s", text)
	}
	if _, err := NewWriter(io.Discard, testKey(1)[:31]); err == nil {
		t.Error("a key of 31 bytes was used")
	}
}

// errReader fails after its data.
type errReader struct{ r io.Reader }

func (e errReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrClosedPipe
	}
	return n, err
}

// TestReadFails returns the errors of the disk as they are.
func TestReadFails(t *testing.T) {
	data := seal(t, content(2*chunkSize), testKey(1))
	for _, n := range []int{10, 1000, len(data) - chunkSize - 16, len(data)} {
		r, err := NewReader(errReader{bytes.NewReader(data[:n])}, testKey(1))
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// FuzzReader opens any file. Only the one that was sealed opens whole.
func FuzzReader(f *testing.F) {
	want := content(chunkSize + 100)
	// The processes that fuzz make the file again, so its salt is no random one.
	var out bytes.Buffer
	w, err := newWriter(&out, testKey(1), make([]byte, saltSize), []string{"sbx_a", "pages"})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := w.Write(want); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	data := out.Bytes()
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add(seal(f, nil, testKey(1), "sbx_a", "pages"))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := unseal(file, testKey(1), "sbx_a", "pages")
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%v; want ErrDamaged", err)
		}
		if len(got) > 0 && !bytes.HasPrefix(want, got) {
			t.Error("returned what was not sealed")
		}
		if err == nil && len(got) > 0 && !bytes.Equal(file, data) {
			t.Error("a changed file was opened whole")
		}
	})
}
