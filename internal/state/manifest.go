package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The versions of the manifest that this package reads. A state whose files are as the
// box's kernel wrote them has Format, which all builds read. Compressed and encrypted
// states have FormatPacked, and compressed ones with a base FormatBased.
const (
	Format       = 1
	FormatPacked = 2
	FormatBased  = 3
)

// manifestName is the file of the manifest. Its first line is the checksum of the
// rest.
const manifestName = "manifest.json"

// MaxManifest bounds a manifest, in bytes. Programs determine how many host files it
// lists.
const MaxManifest = 8 << 20

// A Manifest describes a saved state.
type Manifest struct {
	Format int `json:"format"`
	// Reads is the highest format that the build of the state reads; 0 is Format.
	Reads int `json:"reads,omitempty"`
	// Box is the identifier of the box.
	Box   string    `json:"box"`
	Saved time.Time `json:"saved"`
	Key   Key       `json:"key"`
	// Host are the files of the machine that programs execute or have open. Their
	// content is not in the state.
	Host []HostFile `json:"host,omitempty"`
	// Needed are the paths in the box's workspace that programs have open, or as
	// their working directory.
	Needed []string `json:"needed,omitempty"`
	// Files are the contents of the files.
	Files map[string]Sum `json:"files"`
	// Packed are the files as they are on the disk, if they are compressed.
	Packed map[string]Sum `json:"packed,omitempty"`
	// Based is the file of which Packed has the difference from the base, or "".
	Based string `json:"based,omitempty"`
	// ID is random. The files of an encrypted state open only with the ID in its
	// manifest.
	ID string `json:"id,omitempty"`

	// Sealed is the whole manifest of an encrypted state, encrypted. The manifest on the
	// disk has it in place of the fields about files. KeyID is the identifier of the key,
	// and Size the length of the files on the disk.
	Sealed []byte `json:"sealed,omitempty"`
	KeyID  string `json:"key_id,omitempty"`
	Size   int64  `json:"size,omitempty"`
}

// Bytes returns the length of the files on the disk.
func (m *Manifest) Bytes() (total int64) {
	if m.Sealed != nil {
		return m.Size
	}
	for _, sum := range m.stored() {
		total += sum.Bytes
	}
	return total
}

// stored returns the files as they are on the disk.
func (m *Manifest) stored() map[string]Sum {
	if m.Packed != nil {
		return m.Packed
	}
	return m.Files
}

// A Key names everything that must be the same where the state is used. Its fields
// are compared as they are.
type Key struct {
	// Program and Guest are hashes of the executables, and CPU is one of the
	// processor's features.
	Program string `json:"program"`
	Guest   string `json:"guest"`
	CPU     string `json:"cpu"`
	// Root is the root file system, and Shape the rest of the box's order that is
	// part of its memory.
	Root  string `json:"root"`
	Shape string `json:"shape"`
}

// Check returns an error that names the first difference between the key of a state
// and that of the place where it would be used.
func (k Key) Check(here Key) error {
	for _, part := range []struct{ name, saved, here, hint string }{
		{"another build of Glovebox", k.Program, here.Program, "run the build that saved it, which can wake it"},
		{"another build of Glovebox's guest", k.Guest, here.Guest, "run the build that saved it, which can wake it"},
		{"a machine with other processor features", k.CPU, here.CPU, "wake it on a machine like the one that saved it"},
		{"another image", k.Root, here.Root, "load the image again that the sandbox was made from"},
		{"other limits or settings", k.Shape, here.Shape, "restore the settings with which the sandbox was made"},
	} {
		if part.saved != part.here {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is of %s", part.name), "%s", part.hint)
		}
	}
	return nil
}

// A Sum is the length and the CRC-32C of a file.
type Sum struct {
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf reads a file to its end.
func sumOf(f *os.File) (Sum, error) {
	crc := crc32.New(castagnoli)
	n, err := io.CopyBuffer(struct{ io.Writer }{crc}, io.NewSectionReader(f, 0, 1<<62), make([]byte, 1<<20))
	return Sum{n, crc.Sum32()}, err
}

// decode reads the content of the manifest's file.
func decode(r io.Reader) (*Manifest, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxManifest+1))
	if err != nil {
		return nil, damaged("%w", err)
	}
	sum, body, ok := bytes.Cut(data, []byte("\n"))
	body = bytes.TrimSuffix(body, []byte("\n"))
	if !ok || len(data) > MaxManifest || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)) {
		return nil, damaged("its manifest has another checksum")
	}
	var m Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, damaged("%w", err)
	}
	if m.Format < Format || m.Format > FormatBased {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state has format %d, and this build reads no format above %d", m.Format, FormatBased),
			"run the build that saved it, which can wake it")
	}
	return &m, nil
}

// encode returns the content of the manifest's file.
func (m *Manifest) encode() ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	data = fmt.Appendf(nil, "%08x\n%s\n", crc32.Checksum(data, castagnoli), data)
	if len(data) > MaxManifest {
		return nil, sandbox.Errorf(sandbox.Exhausted, "the list of files that programs use is longer than %s", sandbox.FormatBytes(MaxManifest))
	}
	return data, nil
}

// damaged returns the error of a state that cannot be used by any program.
func damaged(format string, args ...any) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is damaged: "+format, args...),
		"restore the files of the state directory from a backup, or make another sandbox")
}

// A HostFile is a file of the machine as it was when the state was saved.
type HostFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	// Modified is in nanoseconds, and Inode is the file's number.
	Modified int64  `json:"modified"`
	Inode    uint64 `json:"inode"`
}

// CheckNeeded returns an error if a path that programs have open is missing below
// the workspace, which programs see at mount.
func (m *Manifest) CheckNeeded(workspace, mount string) error {
	for _, path := range m.Needed {
		inside, below := strings.CutPrefix(path, mount)
		if !below {
			continue
		}
		if _, err := os.Lstat(filepath.Join(workspace, inside)); err != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "a program of the sandbox has %s open, which is no longer in the workspace", path),
				"put the file back in its place, or make another sandbox")
		}
	}
	return nil
}
