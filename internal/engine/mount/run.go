package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// maxChanges bounds the changes that are named in the result of a run.
const maxChanges = 100

// A Baseline is the state of a workspace when a run began.
type Baseline struct {
	before *workspace.Snapshot
	since  time.Time
	// volumes is the usage of the volumes. It is not saved.
	volumes []sandbox.WorkspaceUsage
}

// Save writes the baseline for [ReadBaseline].
func (b *Baseline) Save(w io.Writer) error {
	return errors.Join(binary.Write(w, binary.LittleEndian, b.since.UnixNano()), b.before.Save(w))
}

// ReadBaseline reads what [Baseline.Save] wrote.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	var since int64
	if err := binary.Read(r, binary.LittleEndian, &since); err != nil {
		return nil, err
	}
	before, err := workspace.ReadSnapshot(r)
	return &Baseline{before: before, since: time.Unix(0, since)}, err
}

// BaselineSince returns a baseline for a run whose own is not known. Files
// changed since its start count as created, and removed files do not count.
func (m *Mount) BaselineSince(ctx context.Context, started time.Time) (*Baseline, error) {
	now, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	since := started.Add(-workspace.Tick) // the file system clock may lag by one tick
	return &Baseline{before: now.Before(since), since: since}, nil
}

// Begin begins a run. Changes are attributed to a run by file time, and the
// file system's clock has a coarse resolution. So Begin waits for the next tick
// if this process changed something just before.
func (m *Mount) Begin(ctx context.Context, r Run) (_ *Baseline, err error) {
	if m == nil {
		return nil, nil
	}
	if err := m.enter(ctx, r); err != nil {
		m.Leave(r)
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Leave(r)
		}
	}()
	m.mu.Lock()
	before, touched := m.last, m.touched
	m.mu.Unlock()
	if before == nil {
		if before, err = m.look(ctx); err != nil {
			return nil, m.tooMuch(err)
		}
	}
	if wait := workspace.Tick - time.Since(touched); !touched.IsZero() && wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &Baseline{before: before, since: m.ws.Clock()}, nil
}

// End ends a run. It returns what changed since the run began, and an error of
// kind Exhausted if the workspace is over its quota.
func (m *Mount) End(ctx context.Context, r Run, b *Baseline) (*sandbox.Changes, error) {
	if m == nil || b == nil {
		return nil, nil
	}
	defer m.Leave(r)
	after, err := m.look(ctx)
	if err != nil {
		return nil, m.tooMuch(err)
	}
	c := workspace.Changes(b.before, after, b.since, maxChanges)
	m.note(&after.Usage)
	err = m.overQuota(ctx, after.Usage, b.before.Usage)
	if err != nil {
		m.blame(after.Usage)
	}
	return &c, err
}

// blame records that a run gets the error for this usage. The watcher must not end
// the next run for it.
func (m *Mount) blame(usage sandbox.WorkspaceUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blamed = &usage
}

// enter counts a run as in progress, until Leave.
func (m *Mount) enter(ctx context.Context, r Run) error {
	return m.Admit(ctx, func() {
		m.runs[r] = true
		m.holds.begun++
	})
}

// Resume counts a run that another process began.
func (m *Mount) Resume(r Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[r] = true
	m.holds.begun++
}

// Leave counts a run as ended.
func (m *Mount) Leave(r Run) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, r)
}
