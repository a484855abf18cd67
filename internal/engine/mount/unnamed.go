package mount

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// unnamedTimeout bounds how long a driver may take to list the open files of a
// sandbox.
const unnamedTimeout = 5 * time.Second

// unnamed counts the unlinked files of the workspace that programs in its
// sandboxes, also paused ones, still have open. A walk of the workspace does
// not find them, but they take room on the disk.
func (m *Mount) unnamed(ctx context.Context) sandbox.WorkspaceUsage {
	m.mu.Lock()
	boxes := make([]Sandbox, 0, len(m.boxes))
	for b := range m.boxes {
		boxes = append(boxes, b)
	}
	last := m.holds.unnamed
	m.mu.Unlock()
	type id struct{ device, inode uint64 }
	files := map[id]int64{} // sandboxes may have the same file open
	for _, b := range boxes {
		list, err := readUnnamed(ctx, b)
		if driver.IsGone(err) {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				m.set.opts.Log.Warn("list files without a name: the last count stays", "sandbox", b.ID(), "error", err)
			}
			return last
		}
		for _, f := range list {
			if f.Dir != m.Path() {
				continue // it is in another workspace of the sandbox
			}
			files[id{f.Device, f.Inode}] = f.Bytes
		}
	}
	var u sandbox.WorkspaceUsage
	for _, bytes := range files {
		u.Files++
		u.Bytes += bytes
	}
	return u
}

func readUnnamed(ctx context.Context, b Sandbox) ([]driver.UnnamedFile, error) {
	ctx, cancel := context.WithTimeout(ctx, unnamedTimeout)
	defer cancel()
	return b.Unnamed(ctx)
}

// add returns the sum of two usages.
func add(a, b sandbox.WorkspaceUsage) sandbox.WorkspaceUsage {
	return sandbox.WorkspaceUsage{Bytes: a.Bytes + b.Bytes, Files: a.Files + b.Files}
}
