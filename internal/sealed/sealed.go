package sealed

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// KeySize is the length of a key, in bytes.
const KeySize = 32

// A Key seals and opens files. Nil is no key.
type Key []byte

// String keeps a key out of logs.
func (Key) String() string { return "(key)" }

// GoString is String for %#v.
func (k Key) GoString() string { return k.String() }

// ID returns a text that tells keys apart, and reveals nothing of the key.
func (k Key) ID() (string, error) {
	id, err := hkdf.Key(sha256.New, k, nil, "glovebox sealed: identifier of the key", 8)
	return hex.EncodeToString(id), err
}

// The form of a sealed file: magic, a salt, and the chunks. A chunk has chunkSize bytes
// of content, the last one fewer, and a tag.
const (
	magic     = "glovebox sealed 1\n"
	saltSize  = 32
	chunkSize = 64 << 10
)

// aead returns the cipher of a file.
func (k Key) aead(salt []byte, names []string) (cipher.AEAD, error) {
	if len(k) != KeySize {
		return nil, sandbox.Errorf(sandbox.Internal, "a key has %d bytes, not %d", len(k), KeySize)
	}
	info := []byte("glovebox sealed: key of a file")
	for _, name := range names { // with their lengths, so that no two lists are equal
		info = binary.AppendUvarint(info, uint64(len(name)))
		info = append(info, name...)
	}
	key, err := hkdf.Key(sha256.New, k, salt, string(info), KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// A nonce is that of a chunk: its number, and 1 in the last byte of the last chunk.
type nonce [12]byte

// next is the nonce of the following chunk.
func (n *nonce) next() error {
	count := binary.BigEndian.Uint64(n[3:11]) + 1
	if count == 0 {
		return errors.New("a sealed file is too long")
	}
	binary.BigEndian.PutUint64(n[3:11], count)
	return nil
}

// A Writer seals what is written to it.
type Writer struct {
	w     io.Writer
	aead  cipher.AEAD
	nonce nonce
	chunk []byte // not written yet, because it may be the last
	out   []byte
	err   error
}

// NewWriter begins a sealed file that opens under those names only. Only Close completes
// it.
func NewWriter(w io.Writer, key Key, names ...string) (*Writer, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	return newWriter(w, key, salt, names)
}

// newWriter is NewWriter with a salt, which must be a fresh one.
func newWriter(w io.Writer, key Key, salt []byte, names []string) (*Writer, error) {
	aead, err := key.aead(salt, names)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append([]byte(magic), salt...)); err != nil {
		return nil, err
	}
	return &Writer{w: w, aead: aead, chunk: make([]byte, 0, chunkSize)}, nil
}

// Write implements [io.Writer].
func (w *Writer) Write(data []byte) (n int, err error) {
	for len(data) > 0 && w.err == nil {
		if len(w.chunk) == chunkSize {
			w.flush()
			continue
		}
		taken := min(chunkSize-len(w.chunk), len(data))
		w.chunk = append(w.chunk, data[:taken]...)
		data, n = data[taken:], n+taken
	}
	return n, w.err
}

// flush seals the chunk.
func (w *Writer) flush() {
	w.out = w.aead.Seal(w.out[:0], w.nonce[:], w.chunk, nil)
	w.chunk = w.chunk[:0]
	if _, w.err = w.w.Write(w.out); w.err == nil {
		w.err = w.nonce.next()
	}
}

// Close writes the last chunk. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.nonce[11] = 1
	w.flush()
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("the sealed file is complete")
	return nil
}

// ErrDamaged is the error of a file that is not as it was sealed, or not under its name,
// or with another key. It is of kind Unavailable.
var ErrDamaged = sandbox.Errorf(sandbox.Unavailable, "it is not what was encrypted under this name with this key")

// A Reader opens a sealed file. What it returns was sealed by the key under the names.
// Only [io.EOF] says that it was all.
type Reader struct {
	r       *bufio.Reader
	aead    cipher.AEAD
	nonce   nonce
	chunk   []byte
	content []byte // of chunk, still to be read
	err     error
}

// NewReader opens a sealed file under those names. The error is [ErrDamaged], here or of
// Read, if it does not open.
func NewReader(r io.Reader, key Key, names ...string) (*Reader, error) {
	head := make([]byte, len(magic)+saltSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, orDamaged(err)
	}
	if !bytes.HasPrefix(head, []byte(magic)) {
		return nil, ErrDamaged
	}
	aead, err := key.aead(head[len(magic):], names)
	if err != nil {
		return nil, err
	}
	return &Reader{r: bufio.NewReaderSize(r, chunkSize), aead: aead, chunk: make([]byte, chunkSize+aead.Overhead())}, nil
}

// orDamaged makes an end that comes too early ErrDamaged.
func orDamaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrDamaged
	}
	return err
}

// Read implements [io.Reader].
func (r *Reader) Read(data []byte) (int, error) {
	for len(r.content) == 0 && r.err == nil {
		r.content, r.err = r.next()
	}
	if len(r.content) == 0 {
		return 0, r.err
	}
	n := copy(data, r.content)
	r.content = r.content[n:]
	return n, nil
}

// next opens a chunk. The error is io.EOF with the last.
func (r *Reader) next() ([]byte, error) {
	n, err := io.ReadFull(r.r, r.chunk)
	last := errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !last {
		return nil, orDamaged(err)
	}
	if !last {
		_, err := r.r.Peek(1)
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, err
		}
	}
	first := r.nonce == nonce{}
	if last {
		r.nonce[11] = 1
	}
	content, err := r.aead.Open(r.chunk[:0], r.nonce[:], r.chunk[:n], nil)
	if err != nil {
		return nil, ErrDamaged
	}
	if last {
		if len(content) == 0 && !first {
			return nil, ErrDamaged // a Writer makes no such chunk
		}
		return content, io.EOF
	}
	return content, r.nonce.next()
}
