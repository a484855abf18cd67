package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A world is a machine with boxes, as a scripted driver makes them: without
// processes, so that time can be a test's own. It outlives the engines on it.
type world struct {
	mu         sync.Mutex
	boxes      map[string]*worldBox
	opaque     bool // references name sandboxes of another system
	creating   func(ctx context.Context, spec *driver.Spec) error
	destroying func()
	discarding func()
	restoring  func()        // while a saved box is resumed
	ended      time.Duration // the CPU time of gone boxes
	receipt    func() sandbox.Receipt
	made       int
	spaces     *worldSpaces // nil without workspaces
}

func newWorld() *world { return &world{boxes: map[string]*worldBox{}} }

// worldDriver is the driver of one engine.
type worldDriver struct{ w *world }

func (d worldDriver) Info() driver.Info {
	return driver.Info{Name: "world", Isolates: true, OpaqueRefs: d.w.opaque, Features: driver.Features{Host: true, Workspace: d.w.spaces != nil, Mounts: d.w.spaces != nil, Pause: true, Ports: true, Incidents: true, Usage: true, Detach: true, Lease: true}}
}
func (d worldDriver) Probe(context.Context) error { return nil }
func (d worldDriver) Close() error                { return nil }

func (d worldDriver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	d.w.mu.Lock()
	creating := d.w.creating
	d.w.mu.Unlock()
	d.w.mu.Lock()
	d.w.made++
	ref := "box-" + spec.ID
	if d.w.opaque {
		ref = sandbox.NewID() // of another Glovebox
	}
	d.w.mu.Unlock()
	b := d.w.add(ref)
	if spec.Workspace != "" {
		b.space = d.w.spaces.space(spec.Workspace)
		b.mounts = map[string]*worldSpace{}
		for _, m := range spec.Mounts {
			b.mounts[m.Path] = d.w.spaces.space(m.Dir)
		}
	}
	if creating != nil {
		if err := creating(ctx, spec); err != nil {
			d.w.remove(b)
			return nil, err
		}
	}
	return b, nil
}

func (d worldDriver) Attach(_ context.Context, ref string) (driver.Box, error) {
	if b := d.w.box(ref); b != nil {
		return b, nil
	}
	return nil, driver.ErrGone
}

func (d worldDriver) List(context.Context) ([]string, error) { return d.w.refs(), nil }

func (d worldDriver) Discard(_ context.Context, ref string) error {
	d.w.mu.Lock()
	discarding := d.w.discarding
	d.w.mu.Unlock()
	if discarding != nil {
		discarding()
	}
	if b := d.w.box(ref); b != nil {
		d.w.remove(b)
	}
	return nil
}

func (w *world) add(ref string) *worldBox {
	b := &worldBox{w: w, ref: ref, procs: map[string]*worldProc{}, execs: map[string]*worldExec{}, files: map[string][]byte{}}
	b.changed = sync.NewCond(&b.mu)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes[ref] = b
	return b
}

func (w *world) box(ref string) *worldBox {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.boxes[ref]
}

func (w *world) refs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.boxes))
}

// only returns the one box there is.
func (w *world) only(tb testing.TB) *worldBox {
	tb.Helper()
	refs := w.refs()
	if len(refs) != 1 {
		tb.Fatalf("boxes %v, want one", refs)
	}
	return w.box(refs[0])
}

func (w *world) remove(b *worldBox) {
	w.mu.Lock()
	delete(w.boxes, b.ref)
	w.mu.Unlock()
	b.die()
}

type worldBox struct {
	w   *world
	ref string

	mu      sync.Mutex
	changed *sync.Cond
	dead    bool
	deaf    bool // nothing can be killed
	hung    bool // files cannot be read: there is no answer
	stuck   bool // as hung, and calls and streams outlast their contexts
	paused  bool
	pauses  int
	saved   bool
	saves   int
	unsaved error  // of Save
	packs   int    // calls of Pack
	packErr error  // of Pack
	packing func() // is called by Pack; nil does nothing
	unwoken error  // of Resume of a saved box
	// unrestarted is the error of Restart.
	unrestarted error
	restarts    int
	resumes     int
	resumed     time.Time
	kills       int
	destroys    int
	failing     error // of Destroy
	procs       map[string]*worldProc
	execs       map[string]*worldExec
	ended       []string // contexts that were restarted or removed
	files       map[string][]byte
	lacks       string // a program that is not there
	unpacked    string
	leases      []driver.Lease
	leaseless   bool        // SetLease waits for the end of its context
	space       *worldSpace // nil without a workspace
	mounts      map[string]*worldSpace
	cpu         time.Duration
}

// die ends the guest and all processes.
func (b *worldBox) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
	b.changed.Broadcast()
}

func (b *worldBox) Ref() string                            { return b.ref }
func (b *worldBox) Dial(context.Context) (net.Conn, error) { return nil, driver.ErrGone }

func (b *worldBox) Receipt(context.Context) (sandbox.Receipt, error) {
	if b.w.receipt != nil {
		return b.w.receipt(), nil
	}
	return fullReceipt(), nil
}

func fullReceipt() (r sandbox.Receipt) {
	for _, n := range sandbox.ControlNames() {
		r = append(r, sandbox.Control{Name: n, Asked: "a", Value: "a", Mechanism: "m", Enforced: true})
	}
	return r
}

func (b *worldBox) Destroy(context.Context) error {
	b.mu.Lock()
	b.destroys++
	err := b.failing
	b.mu.Unlock()
	if err != nil {
		return err
	}
	b.w.mu.Lock()
	destroying := b.w.destroying
	b.w.mu.Unlock()
	if destroying != nil {
		destroying()
	}
	b.w.remove(b)
	return nil
}

func (b *worldBox) Pause(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	b.pauses++
	return nil
}

func (b *worldBox) Restart(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restarts++
	if b.unrestarted != nil {
		return b.unrestarted
	}
	if b.dead {
		return driver.ErrGone
	}
	return nil
}

func (b *worldBox) Resume(context.Context) error {
	b.w.mu.Lock()
	restoring := b.w.restoring
	b.w.mu.Unlock()
	if restoring != nil && b.isSaved() {
		restoring()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return driver.ErrGone
	}
	if b.saved && b.unwoken != nil {
		return b.unwoken
	}
	if b.paused {
		b.resumes++
		b.resumed = time.Now()
	}
	b.paused, b.saved = false, false
	return nil
}

// Save implements [driver.Saver].
func (b *worldBox) Save(context.Context) (driver.Saved, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unsaved != nil {
		return driver.Saved{}, b.unsaved
	}
	b.paused, b.saved = true, true
	b.saves++
	return driver.Saved{Bytes: 10, Build: "build", Stood: time.Millisecond}, nil
}

// Pack halves the state.
func (b *worldBox) Pack(context.Context) (int64, error) {
	b.mu.Lock()
	b.packs++
	meanwhile := b.packing
	b.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.saved {
		return 0, sandbox.Errorf(sandbox.Conflict, "the state was used")
	}
	return 5, b.packErr
}

func (b *worldBox) isSaved() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.saved }

func (b *worldBox) SetLease(ctx context.Context, l driver.Lease) error {
	b.mu.Lock()
	leaseless := b.leaseless
	b.mu.Unlock()
	if leaseless {
		<-ctx.Done()
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases = append(b.leases, l)
	return nil
}

func (b *worldBox) Incidents(context.Context) (driver.Incidents, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return driver.Incidents{Alive: !b.dead, MemoryKills: b.kills}, nil
}

// worldGuest is one engine's client of a box.
type worldGuest struct {
	b      *worldBox
	ctx    context.Context
	cancel context.CancelFunc
}

func (b *worldBox) isPaused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paused
}

func (b *worldBox) guest() *worldGuest {
	ctx, cancel := context.WithCancel(context.Background())
	return &worldGuest{b, ctx, cancel}
}

type worldProc struct {
	req    *guestapi.StartRequest
	events []guestapi.Event // that no stream took
	ended  bool
	input  bytes.Buffer
	timer  *time.Timer
}

var errBroken = sandbox.Errorf(sandbox.Unavailable, "stream broke off")

// checkLocked fails as a guest that cannot answer does. b.mu is held.
func (g *worldGuest) checkLocked() error {
	switch {
	case g.b.dead, g.ctx.Err() != nil:
		return errBroken
	case g.b.paused:
		panic("a paused guest was asked")
	}
	return nil
}

// Start runs the scripts of tests:
//
//	print TEXT...   writes each text, then exits with 0
//	exit N          exits with N
//	sleep DURATION  exits with 0 after it
//	cat             exits with 0 when its input is closed, having written it
//	spew N          writes N bytes, then exits with 0
//	say N           writes N bytes, and goes on until it is killed
//	fill N [PATH]   writes N bytes a second to the workspace, or to the mount at PATH
//	leave N         exits with 0, and leaves a program that does so
func (g *worldGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	b := g.b
	if req.Process.Cmd == "mute" { // the guest never says that it began
		<-ctx.Done()
		return nil, sandbox.Errorf(sandbox.Unavailable, "start process: %w", ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if req.Process.Cmd == b.lacks {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: not found", b.lacks)
	}
	p := &worldProc{req: req}
	b.procs[req.Tag] = p
	args := req.Process.Args
	switch req.Process.Cmd {
	case "print":
		for _, text := range args {
			p.events = append(p.events, guestapi.Event{Data: &guestapi.DataEvent{Stdout: []byte(text)}})
		}
		b.endLocked(p, exited(0))
	case "sleep":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
		}
		p.timer = time.AfterFunc(d, func() { b.endLater(p, exited(0)) })
	case "cat":
	case "say", "spew":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
		}
		for ; n > 0; n -= 64 << 10 {
			text := bytes.Repeat([]byte("x"), min(n, 64<<10))
			p.events = append(p.events, guestapi.Event{Data: &guestapi.DataEvent{Stdout: text}})
		}
		if req.Process.Cmd == "spew" {
			b.endLocked(p, exited(0))
		}
	case "fill":
		space := b.space
		if len(args) > 1 {
			space = b.mounts[args[1]]
		}
		b.fill(space, args[0], func() bool { return p.ended })
	case "leave":
		b.fill(b.space, args[0], func() bool { return false })
		b.endLocked(p, exited(0))
	case "exit":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
		}
		b.endLocked(p, exited(n))
	default:
		b.endLocked(p, exited(0))
	}
	if opts.Timeout > 0 && !p.ended {
		time.AfterFunc(opts.Timeout, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if end := killed(9); !b.deaf {
				end.TimedOut = true
				b.endLocked(p, end)
			}
		})
	}
	return g.stream(ctx, p, req.Tag), nil
}

func exited(code int) *guestapi.End {
	end := &guestapi.End{Status: guestapi.EndExit, ExitCode: &code, Text: fmt.Sprintf("exit status %d", code)}
	if code == 0 {
		end.Status = guestapi.EndOK
	}
	return end
}

func killed(signal int) *guestapi.End {
	return &guestapi.End{Status: guestapi.EndDied, Text: "signal", Detail: guestapi.EndDetail{Signal: signal}}
}

// endLocked ends a process. b.mu is held.
func (b *worldBox) endLocked(p *worldProc, end *guestapi.End) {
	if p.ended {
		return
	}
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.events = append(p.events, guestapi.Event{End: end})
	b.changed.Broadcast()
}

func (b *worldBox) endLater(p *worldProc, end *guestapi.End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(p, end)
}

func (g *worldGuest) Connect(ctx context.Context, sel guestapi.ProcessSelector, _ guestapi.OutputCounts) (guestlink.Events, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	p, err := g.proc(sel)
	if err != nil {
		return nil, err
	}
	return g.stream(ctx, p, sel.Tag), nil
}

func (g *worldGuest) proc(sel guestapi.ProcessSelector) (*worldProc, error) {
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if p := g.b.procs[sel.Tag]; p != nil {
		return p, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no process %s", sel.Tag)
}

type worldStream struct {
	g   *worldGuest
	ctx context.Context
	p   *worldProc
	tag string
}

func (g *worldGuest) stream(ctx context.Context, p *worldProc, tag string) *worldStream {
	wake := func() {
		g.b.mu.Lock()
		defer g.b.mu.Unlock()
		g.b.changed.Broadcast()
	}
	context.AfterFunc(ctx, wake)
	context.AfterFunc(g.ctx, wake)
	return &worldStream{g, ctx, p, tag}
}

func (s *worldStream) Next() (*guestapi.Event, error) {
	b := s.g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.dead || s.ctx.Err() != nil && !b.stuck || s.g.ctx.Err() != nil {
			return nil, errBroken
		}
		if len(s.p.events) > 0 {
			ev := s.p.events[0]
			s.p.events = s.p.events[1:]
			if ev.End != nil {
				delete(b.procs, s.tag)
			}
			return &ev, nil
		}
		b.changed.Wait()
	}
}

func (s *worldStream) Close() error { return nil }

func (g *worldGuest) SendInput(_ context.Context, sel guestapi.ProcessSelector, data []byte, _ bool) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	p, err := g.proc(sel)
	if err == nil {
		p.input.Write(data)
	}
	return err
}

func (g *worldGuest) CloseStdin(_ context.Context, sel guestapi.ProcessSelector) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	p, err := g.proc(sel)
	if err == nil && p.req.Process.Cmd == "cat" {
		p.events = append(p.events, guestapi.Event{Data: &guestapi.DataEvent{Stdout: p.input.Bytes()}})
		g.b.endLocked(p, exited(0))
	}
	return err
}

func (g *worldGuest) Signal(ctx context.Context, sel guestapi.ProcessSelector, sig guestapi.Signal) error {
	g.b.mu.Lock()
	deaf, stuck := g.b.deaf, g.b.stuck
	g.b.mu.Unlock()
	if stuck {
		<-g.ctx.Done()
		return errBroken
	}
	if deaf {
		<-ctx.Done()
		return errBroken
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	p, err := g.proc(sel)
	if err == nil {
		g.b.endLocked(p, killed(9))
	}
	return err
}

func (g *worldGuest) Resize(context.Context, guestapi.ProcessSelector, guestapi.PTYSize) error {
	return nil
}

func (g *worldGuest) Health(context.Context) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	return g.checkLocked()
}

func (g *worldGuest) RoundTrip(req *http.Request) (*http.Response, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if resp, ok, err := g.b.roundTripLocked(req); ok {
		return resp, err
	}
	r, w := io.Pipe()
	go func() {
		var err error
		if req.Body != nil {
			_, err = io.Copy(w, req.Body)
		}
		if req.URL.Path == "/hold" {
			<-req.Context().Done()
			err = req.Context().Err()
		}
		w.CloseWithError(err)
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: req.Header, Body: r}, nil
}

// Listening says that every program listens on port 8000.
func (g *worldGuest) Listening(context.Context, guestapi.ProcessSelector) ([]int, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	return []int{8000}, g.checkLocked()
}

// On webPort a program shows webPage by HTTP.
const (
	webPort = 8080
	webPage = "<h1>It works</h1>"
)

// DialPort connects to a server that answers with what it is sent, on any port
// but 9 and webPort, and on port 10 from a second after the box was resumed. The
// connection ends with the box.
func (g *worldGuest) DialPort(_ context.Context, port int) (guestlink.HalfCloser, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if port == 9 || port == 10 && time.Since(g.b.resumed) < time.Second {
		return nil, sandbox.Errorf(sandbox.Unavailable, "nothing listens on port %d of the sandbox", port)
	}
	near, far := net.Pipe()
	context.AfterFunc(g.ctx, func() { far.Close() })
	go func() {
		defer far.Close()
		if port != webPort {
			_, _ = io.Copy(far, far)
			return
		}
		if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
			_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(webPage), webPage)
		}
	}()
	return worldConn{near}, nil
}

// worldConn is a connection to a port, of which no half can be closed.
type worldConn struct{ net.Conn }

func (worldConn) CloseWrite() error { return nil }

func (g *worldGuest) Close() { g.cancel() }

// openWorld returns an engine on w with the state directory dir.
func openWorld(tb testing.TB, w *world, dir string, change func(*Options)) *Engine {
	tb.Helper()
	ctx := context.Background()
	st, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	opts := Options{
		Driver: worldDriver{w}, Store: st, StateDir: dir,
		dialGuest: func(b driver.Box) guestlink.Guest {
			if live, ok := b.(guestBox); ok {
				b = live.Box
			}
			if kept, ok := b.(snapshotBox); ok {
				b = kept.worldBox
			}
			if kept, ok := b.(diskBox); ok {
				b = kept.worldBox
			}
			return b.(*worldBox).guest()
		},
	}
	if change != nil {
		change(&opts)
	}
	e, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(ctx); err != nil {
			tb.Errorf("close engine: %v", err)
		}
		if err := st.Close(); err != nil {
			tb.Errorf("close store: %v", err)
		}
	})
	return e
}

// crash ends an engine as kill -9 does: nothing is recorded, nothing stopped,
// and its lock is free.
func (e *Engine) crash(tb testing.TB) {
	tb.Helper()
	e.mu.Lock()
	e.closed, e.over = true, true
	boxes := slices.Collect(maps.Values(e.sandboxes))
	clear(e.sandboxes)
	e.mu.Unlock()
	for _, b := range boxes {
		b.mu.Lock()
		b.state = released
		b.rest.stop()
		b.lease.stop()
		runs := slices.Collect(maps.Values(b.runs))
		b.mu.Unlock()
		for _, r := range runs {
			r.LetGo()
			<-r.Done()
		}
	}
	e.cancel()
	e.background.Wait()
	if err := e.owner.Release(context.Background()); err != nil {
		tb.Fatal(err)
	}
	if err := e.logs.Close(); err != nil {
		tb.Fatal(err)
	}
}
