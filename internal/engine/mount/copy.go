package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Where the driver cannot mount a workspace, the box has a copy of it. The
// workspace itself is on this machine and is authoritative. Its changes are
// copied to the box before a run and before a file operation. Changes in the
// box are copied back after a run, after a change to a file, periodically, and
// before the box ends. A run or a change is acknowledged only after that.
// Programs in the box do the copying, so images need GNU find and tar.
//
// An update is unpacked in a separate place and put in place when it is
// complete. If both sides changed a file, the box's version takes the name, as
// the last write does. The other version stays beside it under another name.

// A Copy is a box's copy of its workspace.
type Copy struct {
	b  Sandbox
	m  *Mount
	ws workspace.Copied

	// turn holds one element while files are copied, for as long as the box
	// takes.
	turn chan struct{}
	over atomic.Bool // no more copying
	// ctx ends when the box does, or is left to another process.
	ctx context.Context
	end func()
	// here and there are the states of the workspace and of the box after the
	// last copy; nil before the first. The holder of turn may use them.
	here, there *workspace.Snapshot

	pending atomic.Bool // a copy is about to begin

	state sync.Mutex
	at    time.Time // when the last copy was complete
}

// Times and bounds of copying.
const (
	// copyEvery is how often a box is copied even if nothing else causes it.
	copyEvery = time.Minute
	copyTries = 3
	// maxCopied bounds the bytes of the files in an archive, holes included,
	// where no quota does.
	maxCopied = 1 << 40
)

// NewCopy gives a sandbox a copy of the workspace. It returns nil if the sandbox
// needs none.
func (m *Mount) NewCopy(b Sandbox) (*Copy, error) {
	if m == nil || !m.set.opts.Copied {
		return nil, nil
	}
	ws, ok := m.ws.(workspace.Copied)
	if !ok {
		return nil, sandbox.Errorf(sandbox.Unsupported, "workspace: driver %s copies workspaces, and they are not on this machine", m.set.opts.Driver)
	}
	c := &Copy{b: b, m: m, ws: ws, turn: make(chan struct{}, 1)}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(m.set.ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copies[b] = c.Soon
	return c, nil
}

// End ends the copy, because its sandbox is gone or left to another process.
func (c *Copy) End() {
	if c != nil {
		c.end()
	}
}

// Keep copies the box's changes every copyEvery until the box ends.
func (c *Copy) Keep() {
	if c == nil {
		return
	}
	c.m.set.opts.Work(func() {
		t := time.NewTicker(copyEvery)
		defer t.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-c.m.set.ctx.Done():
				return
			case <-t.C:
			}
			c.outOrWarn()
		}
	})
}

// Clear removes the files that a snapshot gave a new box in the directory of its
// workspace. They are those of another workspace.
func (c *Copy) Clear(ctx context.Context) error {
	if c == nil {
		return nil
	}
	out, err := c.b.Script(ctx, copyTimeout, clearScript)
	if err == nil {
		_, err = io.Copy(io.Discard, out)
		err = errors.Join(err, out.Close())
	}
	return sandbox.Wrap(err, "clear workspace", "")
}

// In copies both ways if the workspace changed.
func (c *Copy) In(ctx context.Context) error { return c.sync(ctx, false) }

// Out copies the changes of the box to the workspace, and the changes of the
// workspace to the box.
func (c *Copy) Out(ctx context.Context) error { return c.sync(ctx, true) }

func (c *Copy) sync(ctx context.Context, out bool) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "wait until files are copied: %w", ctx.Err())
	}
	defer func() { <-c.turn }()
	if c.over.Load() {
		return request.Stopped(c.b.ID(), "it was copied before it ended")
	}
	if !out {
		now, err := c.m.look(ctx)
		if err != nil {
			return c.m.tooMuch(err)
		}
		if changed, gone := workspace.Difference(c.here, now); len(changed)+len(gone) == 0 {
			return nil
		}
	}
	var err error
	for try := range copyTries {
		if try > 0 {
			select {
			case <-time.After(time.Duration(try) * time.Second):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
			break
		}
		if err = c.try(ctx); err == nil || driver.IsGone(err) || !errors.Is(err, sandbox.Unavailable) {
			break
		}
		c.m.set.opts.Log.Debug("copy workspace again", "sandbox", c.b.ID(), "error", err)
	}
	if err == nil {
		c.state.Lock()
		c.at = c.m.set.opts.Now()
		c.state.Unlock()
	}
	return sandbox.Wrap(err, "copy workspace", "")
}

// try copies both ways once.
func (c *Copy) try(ctx context.Context) error {
	there, err := list(ctx, c.b, c.m.tooMuch)
	if err != nil {
		return err
	}
	here, err := c.m.look(ctx)
	if err != nil {
		return c.m.tooMuch(err)
	}
	if c.here == nil { // files of the image are not part of the workspace
		c.here, c.there = workspace.NewSnapshot(), there
	}
	if here, err = c.pull(ctx, here, there); err != nil {
		return err
	}
	if err := c.save(); err != nil {
		return err
	}
	return c.push(ctx, here)
}

// pull copies the changes of the box to the workspace, and returns the state of
// the workspace after that.
func (c *Copy) pull(ctx context.Context, here, there *workspace.Snapshot) (*workspace.Snapshot, error) {
	m := c.m
	changed, gone := workspace.Difference(c.there, there)
	if len(changed)+len(gone) == 0 {
		c.there = there
		return here, nil
	}
	if err := m.overQuota(ctx, there.Usage, here.Usage); err != nil {
		return nil, fmt.Errorf("%w; the sandbox has %s in %d files, and no change was copied", err,
			sandbox.FormatBytes(there.Usage.Bytes), there.Usage.Files)
	}
	// Other boxes and uploads change the workspace while this box sends.
	u := workspace.Update{Placed: changed}
	placing := false
	defer func() {
		if placing {
			m.placing.Unlock()
		}
	}()
	var others int64
	var removed []string
	u.Plan = func(u *workspace.Update) (err error) {
		m.placing.Lock()
		placing = true
		others = m.transferred()
		if here, err = m.look(ctx); err != nil {
			return m.tooMuch(err)
		}
		u.Aside, u.Gone = c.plan(here, there, changed, gone)
		removed = u.Gone
		return nil
	}
	u.Room = func(added, freed int64) error {
		now := here.Usage
		now.Bytes += added - freed
		if err := m.overQuota(ctx, now, here.Usage); err != nil {
			return fmt.Errorf("%w; no change was copied, because the sandbox sent more than it announced", err)
		}
		return nil
	}
	var archive io.ReadCloser
	var in io.Reader // must be a nil interface if there is no archive
	if len(changed) > 0 {
		var err error
		if archive, err = pack(ctx, c.b, changed, there.Usage.Bytes); err != nil {
			return nil, err
		}
		defer archive.Close()
		in = archive
	}
	most := int64(maxCopied)
	for _, q := range []int64{m.set.opts.Quota.Bytes, m.set.opts.PrincipalQuota.Bytes} {
		if q > 0 {
			most = min(most, exportFactor*q)
		}
	}
	_, err := c.ws.Update(ctx, in, most, u)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, sandbox.Errorf(sandbox.Unavailable, "the files from the sandbox are not complete: %w", err)
		}
		return nil, err
	}
	m.Changed()
	m.tellCopies(c.b)
	after, err := m.look(ctx)
	if err != nil {
		return nil, m.tooMuch(err)
	}
	c.there = there
	known := removed
	if others == m.transferred() {
		known = slices.Concat(changed, removed)
	} // else another change may be among them, and goes to the box
	c.here = c.here.With(after, known)
	return after, nil
}

// plan decides how to apply the changed and gone files of the box to the
// workspace. A file that changed here as well is renamed if it is in the way.
// Otherwise it stays, and is copied to the box again.
func (c *Copy) plan(here, there *workspace.Snapshot, changed, gone []string) (asides map[string]string, removed []string) {
	asides = map[string]string{}
	touched, above := map[string]bool{}, map[string]bool{} // above: parents of touched files
	ours, _ := workspace.Difference(c.here, here)
	for _, name := range ours {
		touched[name] = true
		for dir := path.Dir(name); dir != "." && !above[dir]; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	aside := func(name string) {
		if asides[name] == "" {
			asides[name] = workspace.Aside(name, c.b.ID()[len(c.b.ID())-6:])
			c.m.set.opts.Log.Warn("a file of a workspace was changed on both sides", "sandbox", c.b.ID(), "kept as", path.Base(asides[name]))
		}
	}
	for _, name := range changed {
		switch dir := there.IsDir(name); {
		case here.IsDir(name) && !dir && (touched[name] || above[name]), touched[name] && !(here.IsDir(name) && dir):
			aside(name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if touched[dir] && !here.IsDir(dir) { // now a file, or a symbolic link
				aside(dir)
			}
		}
	}
	for _, name := range gone {
		// If a symbolic link replaced a directory, the name would lead to
		// another file.
		if here.Has(name) && !touched[name] {
			removed = append(removed, name)
		}
	}
	return asides, removed
}

// push copies the changes of the workspace to the box.
func (c *Copy) push(ctx context.Context, here *workspace.Snapshot) error {
	changed, gone := workspace.Difference(c.here, here)
	if len(changed)+len(gone) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, name := range changed {
		wanted[name] = true
	}
	stem := temp(c.b)
	archive, names := stem+".tar", stem+".gone"
	pr, pw := io.Pipe()
	exported := make(chan struct{})
	go func() {
		defer close(exported)
		_, err := c.ws.ExportOnly(ctx, pw, 0, func(name string) bool { return wanted[name] })
		pw.CloseWithError(err)
	}()
	err := c.b.PutTemp(ctx, archive, pr)
	pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	<-exported
	if err != nil {
		return err
	}
	var list strings.Builder
	for i := range gone { // contents of a directory come before the directory
		list.WriteString("./" + gone[len(gone)-1-i] + "\x00")
	}
	if err := c.b.PutTemp(ctx, names, strings.NewReader(list.String())); err != nil {
		return err
	}
	out, err := c.b.Script(ctx, copyTimeout, unpackScript, archive, names)
	if err != nil {
		return err
	}
	defer out.Close()
	there, err := workspace.ReadListing(out)
	if err != nil {
		return err
	}
	c.here, c.there = here, c.there.With(there, slices.Concat(changed, gone))
	return c.save()
}

// copyFile returns the name of the file that keeps here and there for the next
// process.
func (c *Copy) copyFile() string { return c.b.ID() + "/workspace.copied" }

// save writes here and there to copyFile, by an atomic rename, if another
// process may take over.
func (c *Copy) save() error {
	if !c.m.set.opts.States {
		return nil
	}
	root := c.m.set.opts.Root
	if err := root.Mkdir(c.b.ID(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	temp := c.copyFile() + ".new"
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(c.here.Save(f), c.there.Save(f), f.Close()); err != nil {
		return err
	}
	return root.Rename(temp, c.copyFile())
}

// Load reads the file of the previous process. If that fails, the workspace
// counts as unchanged, and all files in the box count as new.
func (c *Copy) Load(ctx context.Context) (err error) {
	if c == nil {
		return nil
	}
	f, err := c.m.set.opts.Root.Open(c.copyFile())
	if err == nil {
		defer f.Close()
		if c.here, c.there, err = readCopied(f); err == nil {
			return nil
		}
	}
	c.m.set.opts.Log.Warn("the copied files of a workspace are not known", "sandbox", c.b.ID(), "error", err)
	c.there = workspace.NewSnapshot()
	c.here, err = c.m.look(ctx)
	return err
}

func readCopied(f *os.File) (here, there *workspace.Snapshot, err error) {
	both := bufio.NewReader(f) // shared, so that neither reads too much
	if here, err = workspace.ReadSnapshot(both); err != nil {
		return nil, nil, err
	}
	there, err = workspace.ReadSnapshot(both)
	return here, there, err
}

// Soon copies in the background, unless such a copy is about to begin.
func (c *Copy) Soon() {
	if c == nil || !c.pending.CompareAndSwap(false, true) {
		return
	}
	c.m.set.opts.Work(func() {
		c.pending.Store(false)
		c.outOrWarn()
	})
}

// outOrWarn is Out for a copy without a caller. An error is logged, and the
// next copy tries again. A paused box stays paused, and its next use copies
// first.
func (c *Copy) outOrWarn() {
	ctx := c.m.set.ctx
	done, ok := c.b.StayAwake()
	if !ok {
		return
	}
	defer done()
	if err := c.Out(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.Conflict) {
		c.m.set.opts.Log.Warn("copy workspace", "sandbox", c.b.ID(), "error", err)
	}
}

// Abandon ends the copying without a last copy.
func (c *Copy) Abandon() { c.over.Store(true) }

// Last copies the changes of a sandbox that is about to end, unless it did
// before. wake resumes the sandbox. If that or the copy fails, Last returns a
// note that says how old the last copy is.
func (c *Copy) Last(ctx context.Context, wake func() error) (note string) {
	if c.over.Load() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.set.opts.EndTimeout)
	defer cancel()
	err := wake()
	if err == nil {
		err = c.Out(ctx)
	}
	c.over.Store(true)
	if err == nil {
		return ""
	}
	c.m.set.opts.Log.Error("copy workspace at the end", "sandbox", c.b.ID(), "error", err)
	c.state.Lock()
	defer c.state.Unlock()
	return "; the workspace has what was copied at " + c.at.UTC().Format(time.RFC3339)
}
