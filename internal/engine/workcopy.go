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
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Where the driver cannot mount a workspace, the box has a copy of it. The
// workspace is what counts, and is on this machine. Before a run, and before
// somebody looks at a file, what changed in it goes to the box; after a run,
// after a change to a file, every while and before the box ends, what changed in
// the box comes back, and what was acknowledged waits for that. It is done by
// find and tar in the box, so images need GNU's.
//
// What comes is unpacked aside and put in place when all of it is there. If both
// sides changed a file, the box's takes the name, as with whoever writes last,
// and the other stays beside it under another name.

// A workcopy is a box's copy of its workspace.
type workcopy struct {
	b  *box
	ws workspace.Copied

	// turn holds one while files are copied, which is as long as the box likes.
	turn chan struct{}
	over atomic.Bool // nothing is copied any more
	// ctx ends when the box does, or is left to another process.
	ctx context.Context
	end func()
	// here is the workspace and there the box as of the last time; nil before
	// the first. They are whose turn it is.
	here, there *workspace.Snapshot

	pending atomic.Bool // it is about to be copied

	state sync.Mutex
	at    time.Time // when all was copied last
}

// Times and bounds of copying.
const (
	// copyEvery is how often a box is looked at whatever goes on in it.
	copyEvery = time.Minute
	// copyTimeout bounds copying, with all its tries, and endCopyTimeout that
	// and the wait for its turn when the box is about to end.
	copyTimeout    = 10 * time.Minute
	endCopyTimeout = 3 * time.Minute
	copyTries      = 3
	// archiveSlack is what an archive may have besides the files, and
	// archiveEach for each of them.
	archiveSlack = 64 << 20
	archiveEach  = 16 << 10
	// maxCopied bounds the files of an archive, holes counted, where no quota
	// does.
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

// keepCopying looks at the box every while until it ends.
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

// in copies what changed in the workspace to the box, if anything did.
func (c *workcopy) in(ctx context.Context) error { return c.sync(ctx, false) }

// out copies what changed in the box to the workspace, and the other way round.
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
		return errStopped(c.b.id, "it was copied before it ended")
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
	if c.here == nil { // the image may have something there, which is not ours
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

// pull takes in what changed in the box, and returns what is in the workspace
// then.
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
	// Others, also boxes, change the workspace while the box sends.
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
	var in io.Reader // not an interface with nothing in it
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
	} // else it may be somebody else's, and goes to the box
	c.here = c.here.With(after, known)
	return after, nil
}

// plan says what is done to the workspace to take in what changed in the box,
// and went. What changed here, too, goes aside if it is in the way, and else
// stays and goes to the box again.
func (c *workcopy) plan(here, there *workspace.Snapshot, changed, gone []string) (asides map[string]string, removed []string) {
	asides = map[string]string{}
	touched, above := map[string]bool{}, map[string]bool{} // above has directories with something touched in them
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
			if touched[dir] && !here.IsDir(dir) { // a file by now, or a link
				aside(dir)
			}
		}
	}
	for _, name := range gone {
		// By way of a link that is where a directory was, it would be another.
		if here.Has(name) && !touched[name] {
			removed = append(removed, name)
		}
	}
	return asides, removed
}

// push takes to the box what changed in the workspace.
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
	for i := range gone { // what is in a directory before that
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

// copyFile keeps what both sides had, for a process to come.
func (c *workcopy) copyFile() string { return c.b.id + "/workspace.copied" }

// save writes down what both sides had, if another process may take over.
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

// load reads what the process before wrote. Without that, the workspace is taken
// to be as it was, and all that is in the box to be new.
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
	both := bufio.NewReader(f) // which each takes no more of than it needs
	if here, err = workspace.ReadSnapshot(both); err != nil {
		return nil, nil, err
	}
	there, err = workspace.ReadSnapshot(both)
	return here, there, err
}

// tellCopies has the boxes that have a copy, but for one, take in what changed.
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

// soon copies what changed in the box in a moment, unless that is about to be
// done already.
func (c *workcopy) soon() {
	if c == nil || !c.pending.CompareAndSwap(false, true) {
		return
	}
	c.b.e.work(func() {
		c.pending.Store(false)
		c.outOrWarn()
	})
}

// outOrWarn is out for nobody who waits. The next does it again. A box that is
// paused stays so: who uses it next copies first.
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

// endCopy copies what changed in a box that is about to end, and adds to the
// reason what is missing if it could not. One that hibernates was copied before.
func (b *box) endCopy(ctx context.Context, why reason) reason {
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
	if !strings.HasSuffix(why.cause, note) {
		why.cause += note
	}
	if b.why != nil {
		b.why = &why
	}
	return why
}
