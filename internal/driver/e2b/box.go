package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/plane"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Box is a sandbox of E2B. Its methods are safe for concurrent use.
type Box struct {
	d    *Driver
	id   string
	spec sandbox.Limits // the requested limits
	// image is the requested image, or "" if an earlier version made the box.
	image string
	ttl   time.Duration
	// ctx ends when the driver closes or the box is destroyed. It ends the
	// streams.
	ctx      context.Context
	cancel   context.CancelFunc
	contexts contexts

	mu     sync.Mutex
	token  string
	domain string
	conns  map[net.Conn]struct{}
	paused chan struct{} // nil while the box runs; closed at its resume
}

func (d *Driver) newBox(s *plane.Sandbox, ttl time.Duration) *Box {
	b := &Box{d: d, id: s.Ref(), ttl: ttl, conns: map[net.Conn]struct{}{}}
	b.ctx, b.cancel = context.WithCancel(d.ctx)
	b.contexts.b = b
	b.admit(s)
	if s.State == statePaused {
		b.rest()
	}
	return b
}

// admit stores the access token and domain that E2B gave to the box.
func (b *Box) admit(s *plane.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token, b.domain = s.EnvdAccessToken, s.Domain
	if b.domain == "" {
		b.domain = b.d.opts.Domain
	}
}

// Ref implements [driver.Box].
func (b *Box) Ref() string { return b.id }

// extend renews the box's timeout at E2B until the box or the driver ends.
func (b *Box) extend() {
	for wait(b.ctx, b.ttl/3) == nil {
		if b.resting() != nil {
			continue // a paused box has no timeout
		}
		err := b.d.control.Extend(b.ctx, b.id, b.ttl)
		if driver.IsGone(err) {
			// E2B also refuses to extend a box that another client paused.
			if s, gerr := b.d.control.Get(b.ctx, b.id); gerr == nil && s.State == statePaused {
				b.rest()
				continue
			}
			b.hangUp()
			return
		}
		if err != nil && b.ctx.Err() == nil {
			b.d.log.Warn("extend the time of a sandbox", "sandbox", b.id, "error", err)
		}
	}
}

// noticed returns err, and hangs up if err says that the box is gone.
func (b *Box) noticed(err error) error {
	if driver.IsGone(err) {
		b.hangUp()
	}
	return err
}

// hangUp ends the streams to the box and its background work, because the box is
// gone or the driver closes.
func (b *Box) hangUp() {
	b.cancel()
	b.mu.Lock()
	conns := b.conns
	b.conns = nil
	b.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	b.d.mu.Lock()
	delete(b.d.boxes, b)
	b.d.mu.Unlock()
}

// cut ends the streams to the box, which goes on.
func (b *Box) cut() {
	b.mu.Lock()
	conns := slices.Collect(maps.Keys(b.conns))
	b.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (b *Box) errGone() error {
	return fmt.Errorf("%w: sandbox %s of E2B's", driver.ErrGone, b.id)
}

// Dial implements [driver.Box]. The stream leads to a proxy in this process,
// which adds E2B's credentials to each request.
func (b *Box) Dial(ctx context.Context) (net.Conn, error) {
	const op = "dial guest"
	if b.ctx.Err() != nil {
		return nil, sandbox.Wrap(b.errGone(), op, "")
	}
	if err := b.health(ctx); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	ours, theirs := net.Pipe()
	c := &boxConn{Conn: theirs, b: b}
	b.mu.Lock()
	left := b.conns == nil
	if !left {
		b.conns[c] = struct{}{}
	}
	b.mu.Unlock()
	if left || !b.d.server.serve(c) {
		ours.Close()
		c.Close()
		return nil, sandbox.Wrap(b.errGone(), op, "")
	}
	return ours, nil
}

// boxConn is the proxy's end of a stream.
type boxConn struct {
	net.Conn
	b *Box
}

func (c *boxConn) Close() error {
	c.b.mu.Lock()
	delete(c.b.conns, c)
	c.b.mu.Unlock()
	return c.Conn.Close()
}

// health checks that E2B's agent answers.
func (b *Box) health(ctx context.Context) error {
	var last error
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+guestapi.PathHealth, nil)
		if err != nil {
			return err
		}
		resp, err := b.roundTrip(req, agentPort)
		if err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "reach E2B's agent: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "reach E2B's agent: %w", err)
		}
		if resp.StatusCode/100 == 2 {
			return nil
		}
		last = sandbox.Errorf(sandbox.Unavailable, "E2B's agent answers %d: %s", resp.StatusCode, plane.MessageOf(text))
		// E2B's proxy gives this answer for a sandbox that is unknown or paused.
		// It may also not know a new sandbox yet.
		s, err := b.d.control.Get(ctx, b.id)
		if err != nil {
			return b.noticed(err)
		}
		if s.State == statePaused {
			b.rest()
			continue
		}
		if err := b.d.control.Wait(ctx, plane.FirstPause); err != nil {
			return err
		}
	}
	return last
}

// roundTrip sends a request to a port of the box, with the box's access token.
// If E2B refuses the token, it fetches a new token and retries once.
func (b *Box) roundTrip(req *http.Request, port int) (*http.Response, error) {
	resp, err := b.send(req, port)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	resp.Body.Close()
	s, err := b.d.control.Get(req.Context(), b.id)
	if err != nil {
		return nil, err
	}
	b.admit(s)
	if req.GetBody != nil {
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	return b.send(req, port)
}

// agentPort is the port of E2B's agent in a sandbox.
const agentPort = 49983

func (b *Box) send(req *http.Request, port int) (*http.Response, error) {
	if err := b.awake(req.Context()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	token, domain := b.token, b.domain
	b.mu.Unlock()
	out := req.Clone(req.Context())
	base := b.d.opts.SandboxURL
	if base == "" {
		base = fmt.Sprintf("https://%d-%s.%s", port, b.id, domain)
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+req.URL.Path, ""
	u.RawQuery = req.URL.RawQuery
	out.URL, out.Host, out.RequestURI = u, u.Host, ""
	out.Header.Set("E2b-Sandbox-Id", b.id)
	out.Header.Set("E2b-Sandbox-Port", strconv.Itoa(port))
	if token != "" {
		out.Header.Set("X-Access-Token", token)
	}
	return b.d.traffic.Transport.RoundTrip(out)
}

// setUp makes the working directory of a sandbox and sets its host name.
const setUp = `mkdir -p "$1" && chown user: "$1" && chmod 755 "$1" && { hostname "$2" 2>/dev/null; :; }`

// setUpClone sets the host name of a sandbox of a snapshot, and begins another generation
// in [guestapi.GenerationFile].
const setUpClone = `hostname "$1" 2>/dev/null
umask 022
n=$(head -n 1 "$2" 2>/dev/null)
case $n in '' | 0* | *[!0-9]* | ??????????*) n=0 ;; esac
mkdir -p "${2%/*}" && { echo $((n + 1)) && head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' && echo; } >"$2.new" && mv -f "$2.new" "$2"`

// prepare sets up a new sandbox. A clone is of a snapshot.
func (b *Box) prepare(ctx context.Context, spec *driver.Spec, clone bool) error {
	if err := b.health(ctx); err != nil {
		return err
	}
	if b.d.opts.Bare {
		return nil
	}
	args, what := []string{"-c", setUp, "sh", sandbox.WorkDir, spec.Hostname}, "make "+sandbox.WorkDir+" for the user \"user\""
	if clone {
		args, what = []string{"-c", setUpClone, "sh", spec.Hostname, guestapi.GenerationFile}, "write "+guestapi.GenerationFile
	}
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	no := false
	p, err := client.Start(ctx, &guestapi.StartRequest{Process: guestapi.ProcessConfig{
		Cmd: "/bin/sh", Args: args,
	}, Stdin: &no}, guestapi.StartOptions{User: sandbox.Root, Timeout: plane.RequestTimeout})
	if err != nil {
		return sandbox.Wrap(err, "prepare box", "")
	}
	defer p.Close()
	var said []byte
	for {
		ev, err := p.Next()
		if err != nil {
			return sandbox.Wrap(err, "prepare box", "")
		}
		if ev.Data != nil {
			said = append(said, ev.Data.Stderr[:min(len(ev.Data.Stderr), 500-len(said))]...)
		}
		if ev.End != nil && ev.End.Status == guestapi.EndOK {
			return nil
		}
		if ev.End != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "prepare box: %s: %s: %s", what, ev.End.Text, plane.MessageOf(said)),
				"use a template that has the user \"user\", such as E2B's own")
		}
	}
}

// Receipt implements [driver.Box]. Some controls cannot be read from E2B and are
// taken on trust: its sandboxes are virtual machines with a kernel of their own.
func (b *Box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	s, err := b.d.control.Get(ctx, b.id)
	if err != nil {
		return nil, sandbox.Wrap(err, "read receipt", "")
	}
	spec := b.spec
	const told = "reported by E2B's control plane"
	limit := func(name sandbox.ControlName, asked, got float64, format func(float64) string) sandbox.Control {
		if asked == 0 {
			asked = got // the request is unknown, so report the actual value
		}
		return sandbox.Control{Name: name, Asked: format(asked), Value: format(got), Mechanism: told, Enforced: got > 0 && got <= asked}
	}
	size := func(name sandbox.ControlName, asked, got int64) sandbox.Control {
		return limit(name, float64(asked), float64(got), func(n float64) string { return sandbox.FormatBytes(int64(n)) })
	}
	network := sandbox.Control{Name: sandbox.ControlNetwork, Asked: string(sandbox.NetworkNone), Mechanism: told}
	if s.AllowInternetAccess != nil && !*s.AllowInternetAccess {
		network.Value, network.Enforced = string(sandbox.NetworkNone), true
	}
	machine := func(name sandbox.ControlName, value string) sandbox.Control {
		return sandbox.Control{Name: name, Asked: "a virtual machine of its own", Value: value, Mechanism: "E2B's Firecracker, not read back", Enforced: true}
	}
	return sandbox.Receipt{
		limit(sandbox.ControlCPU, spec.CPUs, s.CPUCount, func(n float64) string { return fmt.Sprintf("%g", n) }),
		size(sandbox.ControlMemory, spec.MemoryBytes, s.MemoryMB<<20),
		{Name: sandbox.ControlProcesses, Asked: "a limit", Value: "none"},
		size(sandbox.ControlDisk, spec.DiskBytes, s.DiskSizeMB<<20),
		network,
		machine(sandbox.ControlUser, "user inside, nobody outside"),
		machine(sandbox.ControlCapabilities, "those of its own kernel"),
		machine(sandbox.ControlSeccomp, "that of the virtual machine monitor"),
		machine(sandbox.ControlRootFS, "the template's, copied on write"),
	}, nil
}

// Destroy implements [driver.Box].
func (b *Box) Destroy(ctx context.Context) error {
	// Finish even if the caller's ctx ends, because a running sandbox costs
	// money.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*plane.RequestTimeout)
	defer cancel()
	if err := b.d.control.Kill(ctx, b.id); err != nil {
		return sandbox.Wrap(err, "destroy box", b.id)
	}
	b.hangUp()
	return sandbox.Wrap(b.contexts.forget(), "destroy box", b.id)
}
