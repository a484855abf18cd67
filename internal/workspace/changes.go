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

// A Snapshot is what was in a workspace at one time.
type Snapshot struct {
	Usage sandbox.WorkspaceUsage
	files map[string]stamp // without directories
	dirs  map[string]int64 // when each changed, in nanoseconds
}

// A stamp changes when a file does: programs can set the size and the time of
// modification back, but not the time of that.
type stamp struct {
	File    uint64
	Size    int64
	Changed int64
	Link    bool
}

// maxSnapshot bounds what is looked at of one workspace.
const maxSnapshot = 1_000_000

// Snapshot looks at every file of the workspace: some 2 ms for a thousand. It
// fails with [sandbox.Exhausted] for a workspace with more than a million files
// or with directories nested too deep.
func (w *Workspace) Snapshot(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{files: map[string]stamp{}, dirs: map[string]int64{}}
	err := w.dir.Walk(ctx, maxSnapshot, func(e *safepath.Entry) error {
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

// savedSnapshot is how a snapshot is kept in a file, for a process to come.
type savedSnapshot struct {
	Usage sandbox.WorkspaceUsage
	Files map[string]stamp
	Dirs  map[string]int64
}

// Save writes the snapshot for [ReadSnapshot].
func (s *Snapshot) Save(w io.Writer) error {
	return gob.NewEncoder(w).Encode(savedSnapshot{s.Usage, s.files, s.dirs})
}

// ReadSnapshot reads what Save wrote: a file of ours, not of anybody else's.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	var s savedSnapshot
	if err := gob.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return &Snapshot{s.Usage, s.Files, s.Dirs}, nil
}

// Before returns what is in the snapshot and was not changed from t on: as much
// as it tells of the workspace at that time. What was changed since is not
// there, and compared with it looks created.
func (s *Snapshot) Before(t time.Time) *Snapshot {
	old := &Snapshot{s.Usage, maps.Clone(s.files), s.dirs}
	maps.DeleteFunc(old.files, func(_ string, f stamp) bool { return f.Changed >= t.UnixNano() })
	return old
}

// Measure says how much is in the workspace. It fails as Snapshot does.
func (w *Workspace) Measure(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	var u sandbox.WorkspaceUsage
	err := w.dir.Walk(ctx, maxSnapshot, func(e *safepath.Entry) error {
		u.Files++
		u.Bytes += e.Allocated
		return nil
	})
	return u, explain(err)
}

// Clock returns a time by the clock that the file system stamps files with.
func Clock() time.Time { return coarseNow() }

// Tick is how exact that clock is, at the least.
const Tick = 10 * time.Millisecond

// Changes says what changed from before to after, and not earlier than since,
// which is a time of [Clock]'s. At most limit files are named, the totals are
// of all. A file that was removed and made again counts as modified, one that
// was renamed as removed and created, and directories do not count. What
// others did in the same time counts as well.
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
		// Its directory says when, if that is still there.
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

// order puts what can be fetched before what is gone.
func order(c sandbox.Change) int {
	return slices.Index([]sandbox.Change{sandbox.FileCreated, sandbox.FileModified, sandbox.FileRemoved}, c)
}
