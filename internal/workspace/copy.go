package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Where a workspace cannot be mounted, a sandbox has a copy of it. The engine
// compares both sides repeatedly with snapshots of the last time. It copies the
// changes of each side to the other.

// A Copied is a workspace on this machine that has copies elsewhere. See
// [Workspace] for its methods.
type Copied interface {
	Opened
	ExportOnly(ctx context.Context, out io.Writer, most int64, only func(name string) bool) (safepath.Counts, error)
	Update(ctx context.Context, in io.Reader, bytes int64, u Update) (safepath.Counts, error)
}

var _ Copied = opened{}

// An Update describes changes to a workspace, besides putting files into it.
type Update = safepath.Update

// ExportOnly is Export of the files for whose names only returns true.
func (w *Workspace) ExportOnly(ctx context.Context, out io.Writer, most int64, only func(name string) bool) (safepath.Counts, error) {
	n, err := w.dir.ExportOnly(ctx, out, safepath.Limits{Bytes: most}, only)
	return n, explain(err)
}

// Update applies the changes of a copy to the workspace: the files of an archive,
// and the removals of u. The files have at most bytes bytes. If unpacking fails,
// the workspace does not change. in is nil if there are no files to put.
func (w *Workspace) Update(ctx context.Context, in io.Reader, bytes int64, u Update) (safepath.Counts, error) {
	lim := safepath.Limits{Files: MaxFiles, Bytes: bytes, AnyBytes: true, Ratio: 1} // not compressed
	n, err := w.dir.Update(ctx, in, w.set.staging, lim, u)
	return n, explain(err)
}

// Aside returns a free name for a file that conflicts with a file of another
// side. mark identifies that side.
func Aside(name, mark string) string {
	dir, base := path.Split(name)
	if most := safepath.MaxPart - 40; len(base) > most {
		base = strings.ToValidUTF8(base[:most], "")
	}
	return fmt.Sprintf("%s%s.conflict-%s-%d", dir, base, mark, time.Now().UnixNano()%1e9)
}

// Difference returns the names that are new or changed in after, and the names
// that are only in before. A name whose type changed is in both. Directories are
// included, but a change of their contents does not count.
func Difference(before, after *Snapshot) (changed, gone []string) {
	for name, now := range after.files {
		if was, known := before.files[name]; !known || was != now {
			changed = append(changed, name)
		}
	}
	for name := range after.dirs {
		if _, known := before.dirs[name]; !known {
			changed = append(changed, name)
		}
	}
	for name := range before.files {
		if _, there := after.files[name]; !there {
			gone = append(gone, name)
		}
	}
	for name := range before.dirs {
		if _, there := after.dirs[name]; !there {
			gone = append(gone, name)
		}
	}
	slices.Sort(changed)
	slices.Sort(gone)
	return changed, gone
}

// NewSnapshot returns a snapshot of an empty workspace.
func NewSnapshot() *Snapshot { return &Snapshot{files: map[string]stamp{}, dirs: map[string]int64{}} }

// With returns a copy of s in which the entries with these names come from from.
func (s *Snapshot) With(from *Snapshot, names []string) *Snapshot {
	n := &Snapshot{s.Usage, maps.Clone(s.files), maps.Clone(s.dirs)}
	for _, name := range names {
		delete(n.files, name)
		delete(n.dirs, name)
		if f, ok := from.files[name]; ok {
			n.files[name] = f
		}
		if d, ok := from.dirs[name]; ok {
			n.dirs[name] = d
		}
	}
	return n
}

// IsDir reports whether name is a directory in s.
func (s *Snapshot) IsDir(name string) bool {
	_, ok := s.dirs[name]
	return ok
}

// Has reports whether s has an entry of that name.
func (s *Snapshot) Has(name string) bool {
	_, ok := s.files[name]
	return ok || s.IsDir(name)
}

// ListingFormat is the format for GNU find that [ReadListing] reads.
const ListingFormat = `%y %i %s %b %C@ %P\0`

// Bounds of a listing: the bytes of all names together, and the bytes of all
// files. The second is more than any disk has.
const (
	maxNames  = 256 << 20
	maxListed = 1 << 58
)

// ReadListing reads a snapshot from an untrusted listing of a directory
// elsewhere. It leaves out entries that are not files, directories or links. The
// error wraps [sandbox.Exhausted] if there is more than a Snapshot may have.
func ReadListing(r io.Reader) (*Snapshot, error) {
	s := NewSnapshot()
	names := 0
	seen := map[uint64]bool{}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4<<10), safepath.MaxName+1024)
	in.Split(splitNUL)
	for in.Scan() {
		kind, name, e, err := parseListed(in.Text())
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Unavailable, "read listing: %w", err)
		}
		if s.Usage.Files++; s.Usage.Files > MaxFiles {
			return nil, sandbox.Errorf(sandbox.Exhausted, "too many files")
		}
		if strings.Count(name, "/") >= safepath.MaxDepth {
			return nil, sandbox.Errorf(sandbox.Exhausted, "directories are nested deeper than %d", safepath.MaxDepth)
		}
		if names += len(name); names > maxNames {
			return nil, sandbox.Errorf(sandbox.Exhausted, "the names of the files have more than %d bytes", maxNames)
		}
		if !seen[e.File] {
			s.Usage.Bytes += e.allocated
		}
		if s.Usage.Bytes > maxListed {
			return nil, sandbox.Errorf(sandbox.Exhausted, "too many bytes")
		}
		switch kind {
		case "d":
			s.dirs[name] = e.Changed
		case "f":
			seen[e.File] = true
			s.files[name] = e.stamp
		case "l":
			e.Link = true
			s.files[name] = e.stamp
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return nil, sandbox.Errorf(sandbox.Exhausted, "a name has more than %d bytes", safepath.MaxName)
	}
	return s, in.Err()
}

type listed struct {
	stamp
	allocated int64
}

// parseListed parses one entry.
func parseListed(text string) (kind, name string, e listed, err error) {
	bad := fmt.Errorf("the entry is %.80q", text)
	f := strings.SplitN(text, " ", 6)
	if len(f) != 6 || f[5] == "" || path.Clean(f[5]) != f[5] || path.IsAbs(f[5]) || f[5] == "." || f[5] == ".." || strings.HasPrefix(f[5], "../") {
		return "", "", e, bad
	}
	file, err1 := strconv.ParseUint(f[1], 10, 64)
	size, err2 := strconv.ParseInt(f[2], 10, 64)
	blocks, err3 := strconv.ParseInt(f[3], 10, 64)
	seconds, part, _ := strings.Cut(f[4], ".")
	sec, err4 := strconv.ParseInt(seconds, 10, 64)
	nano, err5 := strconv.ParseInt((part + "000000000")[:9], 10, 64)
	if errors.Join(err1, err2, err3, err4, err5) != nil || size < 0 || blocks < 0 || blocks > 1<<50 {
		return "", "", e, bad
	}
	e = listed{stamp{File: file, Size: size, Changed: time.Unix(sec, nano).UnixNano()}, blocks * 512}
	return f[0], f[5], e, nil
}

// splitNUL splits entries that end with a NUL byte. An entry without one was
// truncated.
func splitNUL(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}
