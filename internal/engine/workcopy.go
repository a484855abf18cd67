package engine

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
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
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

// A workcopy is a box's copy of its workspace.
type workcopy struct {
	b  *box
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
	// copyTimeout bounds a copy with all its tries. endCopyTimeout bounds the
	// copy of a box that is about to end, with the wait for its turn.
	copyTimeout    = 10 * time.Minute
	endCopyTimeout = 3 * time.Minute
	copyTries      = 3
	// archiveSlack is how many bytes an archive may have besides the files, and
	// archiveEach how many more for each file.
	archiveSlack = 64 << 20
	archiveEach  = 16 << 10
	// maxCopied bounds the bytes of the files in an archive, holes included,
	// where no quota does.
	maxCopied = 1 << 40
)

// newCopy gives the box a copy of its workspace, if it needs one.
func (b *box) newCopy() error {
	if b.mount == nil || !b.e.features.WorkspaceCopied {
		return nil
	}
	ws, ok := b.mount.ws.(workspace.Copied)
	if !ok {
		return sandbox.Errorf(sandbox.Unsupported, "workspace: driver %s copies workspaces, and they are not on this machine", b.e.name)
	}
	c := &workcopy{b: b, ws: ws, turn: make(chan struct{}, 1)}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(b.e.ctx))
	b.copy = c
	return nil
}

// keepCopying copies the box's changes every copyEvery until the box ends.
func (c *workcopy) keepCopying() {
	if c == nil {
		return
	}
	c.b.e.work(func() {
		t := time.NewTicker(copyEvery)
		defer t.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-c.b.e.ctx.Done():
				return
			case <-t.C:
			}
			c.outOrWarn()
		}
	})
}

// in copies both ways if the workspace changed.
func (c *workcopy) in(ctx context.Context) error { return c.sync(ctx, false) }

// out copies the changes of the box to the workspace, and the changes of the
// workspace to the box.
func (c *workcopy) out(ctx context.Context) error { return c.sync(ctx, true) }

func (c *workcopy) sync(ctx context.Context, out bool) error {
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
		return request.Stopped(c.b.id, "it was copied before it ended")
	}
	if !out {
		now, err := c.b.mount.look(ctx)
		if err != nil {
			return c.b.mount.tooMuch(err)
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
		c.b.e.log.Debug("copy workspace again", "sandbox", c.b.id, "error", err)
	}
	if err == nil {
		c.state.Lock()
		c.at = c.b.e.now()
		c.state.Unlock()
	}
	return sandbox.Wrap(err, "copy workspace", "")
}

// try copies both ways once.
func (c *workcopy) try(ctx context.Context) error {
	there, err := c.list(ctx)
	if err != nil {
		return err
	}
	here, err := c.b.mount.look(ctx)
	if err != nil {
		return c.b.mount.tooMuch(err)
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
func (c *workcopy) pull(ctx context.Context, here, there *workspace.Snapshot) (*workspace.Snapshot, error) {
	m := c.b.mount
	changed, gone := workspace.Difference(c.there, there)
	if len(changed)+len(gone) == 0 {
		c.there = there
		return here, nil
	}
	if err := m.overQuota(ctx, there.Usage, here.Usage); err != nil {
		return nil, fmt.Errorf("%w, and the sandbox has %s in %d files, of which nothing new was copied", err,
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
			return fmt.Errorf("%w, and nothing new was copied from the sandbox, which has more than it says", err)
		}
		return nil
	}
	var archive io.ReadCloser
	var in io.Reader // must be a nil interface if there is no archive
	if len(changed) > 0 {
		var err error
		if archive, err = c.pack(ctx, changed, there); err != nil {
			return nil, err
		}
		defer archive.Close()
		in = archive
	}
	most := int64(maxCopied)
	for _, q := range []int64{m.e.opts.WorkspaceQuota.Bytes, m.e.opts.PrincipalQuota.Bytes} {
		if q > 0 {
			most = min(most, exportFactor*q)
		}
	}
	_, err := c.ws.Update(ctx, in, most, u)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, sandbox.Errorf(sandbox.Unavailable, "what the sandbox sent is not whole: %w", err)
		}
		return nil, err
	}
	m.changed()
	m.tellCopies(c)
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
func (c *workcopy) plan(here, there *workspace.Snapshot, changed, gone []string) (asides map[string]string, removed []string) {
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
			asides[name] = workspace.Aside(name, c.b.id[len(c.b.id)-6:])
			c.b.e.log.Warn("a file of a workspace was changed on both sides", "sandbox", c.b.id, "kept as", path.Base(asides[name]))
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
func (c *workcopy) push(ctx context.Context, here *workspace.Snapshot) error {
	changed, gone := workspace.Difference(c.here, here)
	if len(changed)+len(gone) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, name := range changed {
		wanted[name] = true
	}
	stem := c.temp()
	archive, names := stem+".tar", stem+".gone"
	pr, pw := io.Pipe()
	exported := make(chan struct{})
	go func() {
		defer close(exported)
		_, err := c.ws.ExportOnly(ctx, pw, 0, func(name string) bool { return wanted[name] })
		pw.CloseWithError(err)
	}()
	_, err := c.b.guest.Write(ctx, archive, pr, guestapi.WriteOptions{User: sandbox.Root})
	pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	<-exported
	if err != nil {
		return err
	}
	var list strings.Builder
	for i := range gone { // contents of a directory come before the directory
		list.WriteString("./" + gone[len(gone)-1-i] + "\x00")
	}
	if _, err := c.b.guest.Write(ctx, names, strings.NewReader(list.String()), guestapi.WriteOptions{User: sandbox.Root}); err != nil {
		return err
	}
	out, err := c.start(ctx, unpackScript, archive, names)
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
func (c *workcopy) copyFile() string { return c.b.id + "/workspace.copied" }

// save writes here and there to copyFile, by an atomic rename, if another
// process may take over.
func (c *workcopy) save() error {
	if !c.b.e.opts.Detached {
		return nil
	}
	root := c.b.e.logs
	if err := root.Mkdir(c.b.id, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
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

// load reads the file of the previous process. If that fails, the workspace
// counts as unchanged, and all files in the box count as new.
func (c *workcopy) load(ctx context.Context) (err error) {
	if c == nil {
		return nil
	}
	f, err := c.b.e.logs.Open(c.copyFile())
	if err == nil {
		defer f.Close()
		if c.here, c.there, err = readCopied(f); err == nil {
			return nil
		}
	}
	c.b.e.log.Warn("what was copied of a workspace is not known", "sandbox", c.b.id, "error", err)
	c.there = workspace.NewSnapshot()
	c.here, err = c.b.mount.look(ctx)
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

// tellCopies makes all boxes with a copy, except but, copy the new changes.
func (m *mount) tellCopies(but *workcopy) {
	if !m.e.features.WorkspaceCopied {
		return
	}
	m.e.mu.Lock()
	var copies []*workcopy
	for _, b := range m.e.boxes {
		if b.started() && b.mount == m && b.copy != but {
			copies = append(copies, b.copy)
		}
	}
	m.e.mu.Unlock()
	for _, c := range copies {
		c.soon()
	}
}

// soon copies in the background, unless such a copy is about to begin.
func (c *workcopy) soon() {
	if c == nil || !c.pending.CompareAndSwap(false, true) {
		return
	}
	c.b.e.work(func() {
		c.pending.Store(false)
		c.outOrWarn()
	})
}

// outOrWarn is out for a copy without a caller. An error is logged, and the
// next copy tries again. A paused box stays paused, and its next use copies
// first.
func (c *workcopy) outOrWarn() {
	ctx := c.b.e.ctx
	done, ok := c.b.stayAwake()
	if !ok {
		return
	}
	defer done()
	if err := c.out(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.Conflict) {
		c.b.e.log.Warn("copy workspace", "sandbox", c.b.id, "error", err)
	}
}

// endCopy copies the changes of a box that is about to end. If it fails, it
// adds to the reason how old the last copy is. A hibernated box was copied
// before.
func (b *box) endCopy(ctx context.Context, why verdict.Reason) verdict.Reason {
	c := b.copy
	b.mu.Lock()
	hibernates := b.rec.State == sandbox.Hibernated
	b.mu.Unlock()
	if c.over.Load() || hibernates {
		c.over.Store(true)
		return why
	}
	ctx, cancel := context.WithTimeout(ctx, b.e.opts.endCopyTimeout)
	defer cancel()
	err := b.wake()
	if err == nil {
		err = c.out(ctx)
	}
	c.over.Store(true)
	if err == nil {
		return why
	}
	b.e.log.Error("copy workspace at the end", "sandbox", b.id, "error", err)
	c.state.Lock()
	note := "; the workspace has what was copied at " + c.at.UTC().Format(time.RFC3339)
	c.state.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.HasSuffix(why.Cause, note) {
		why.Cause += note
	}
	if b.why != nil {
		b.why = &why
	}
	return why
}
