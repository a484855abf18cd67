package workspace

import (
	"cmp"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Snapshot is the state of a workspace at one time.
type Snapshot struct {
	Usage sandbox.WorkspaceUsage
	files map[string]stamp // without directories
	dirs  map[string]int64 // the change time of each, in nanoseconds
}

// A stamp changes whenever the file changes. Programs can restore a file's size
// and modification time, but not its change time.
type stamp struct {
	File    uint64
	Size    int64
	Changed int64
	Link    bool
}

// MaxFiles bounds the files of any type that a walk of one workspace visits. A
// workspace with more cannot be counted.
const MaxFiles = 1_000_000

// Snapshot walks every file of the workspace, which takes some 2 ms for a
// thousand files. The error wraps [sandbox.Exhausted] if there are more than a
// million files, or if directories are nested too deep.
func (w *Workspace) Snapshot(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{files: map[string]stamp{}, dirs: map[string]int64{}}
	err := w.dir.Walk(ctx, MaxFiles, func(e *safepath.Entry) error {
		s.Usage.Files++
		s.Usage.Bytes += e.Allocated
		changed := e.Changed
		if changed.IsZero() {
			changed = e.Modified
		}
		if e.Mode.IsDir() {
			s.dirs[e.Path] = changed.UnixNano()
			return nil
		}
		s.files[e.Path] = stamp{e.File, e.Size, changed.UnixNano(), e.Mode.Type() == fs.ModeSymlink}
		return nil
	})
	return s, explain(err)
}

// savedSnapshot is the form of a snapshot in a file, for a later process.
type savedSnapshot struct {
	Usage sandbox.WorkspaceUsage
	Files map[string]stamp
	Dirs  map[string]int64
}

// Save writes the snapshot in the form that [ReadSnapshot] reads.
func (s *Snapshot) Save(w io.Writer) error {
	return gob.NewEncoder(w).Encode(savedSnapshot{s.Usage, s.files, s.dirs})
}

// ReadSnapshot reads a snapshot that Save wrote. The source must be trusted.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	var s savedSnapshot
	if err := gob.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return &Snapshot{s.Usage, s.Files, s.Dirs}, nil
}

// Before returns a snapshot without the files that changed at t or later. It
// approximates the workspace at that time. A file that changed since is missing,
// and so counts as created in a comparison.
func (s *Snapshot) Before(t time.Time) *Snapshot {
	old := &Snapshot{s.Usage, maps.Clone(s.files), s.dirs}
	maps.DeleteFunc(old.files, func(_ string, f stamp) bool { return f.Changed >= t.UnixNano() })
	return old
}

// Measure returns the usage of the workspace. It fails as Snapshot does.
func (w *Workspace) Measure(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	var u sandbox.WorkspaceUsage
	err := w.dir.Walk(ctx, MaxFiles, func(e *safepath.Entry) error {
		u.Files++
		u.Bytes += e.Allocated
		return nil
	})
	return u, explain(err)
}

// Clock returns the time of the clock with which the file system stamps files.
func Clock() time.Time { return coarseNow() }

// Tick bounds the resolution of that clock.
const Tick = 10 * time.Millisecond

// Changes returns the changes between before and after that were not made before
// since, a time of [Clock]. It names at most limit files, but the totals include
// all. A file that was removed and created again counts as modified. A renamed
// file counts as removed and created. Directories do not count. Changes of other
// processes in the same time are included.
func Changes(before, after *Snapshot, since time.Time, limit int) sandbox.Changes {
	var c sandbox.Changes
	start := since.UnixNano()
	add := func(name string, size int64, change sandbox.Change) {
		c.Files = append(c.Files, sandbox.FileChange{Path: strings.ToValidUTF8(name, "\uFFFD"), Size: size, Change: change})
	}
	for name, now := range after.files {
		was, known := before.files[name]
		switch {
		case now == was || now.Changed < start:
		case known:
			c.Modified++
			add(name, now.Size, sandbox.FileModified)
		default:
			c.Created++
			add(name, now.Size, sandbox.FileCreated)
		}
	}
	for name := range before.files {
		if _, there := after.files[name]; there {
			continue
		}
		// The change time of its directory shows when it was removed, if the
		// directory still exists.
		if changed, there := after.dirs[path.Dir(name)]; there && changed < start {
			continue
		}
		c.Removed++
		add(name, 0, sandbox.FileRemoved)
	}
	slices.SortFunc(c.Files, func(a, b sandbox.FileChange) int {
		return cmp.Or(order(a.Change)-order(b.Change), cmp.Compare(a.Path, b.Path))
	})
	if len(c.Files) > limit {
		c.Omitted = len(c.Files) - limit
		c.Files = slices.Clip(c.Files[:limit])
	}
	return c
}

// order sorts the files that a caller can fetch before the removed files.
func order(c sandbox.Change) int {
	return slices.Index([]sandbox.Change{sandbox.FileCreated, sandbox.FileModified, sandbox.FileRemoved}, c)
}
