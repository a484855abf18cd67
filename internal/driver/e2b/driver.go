// Package e2b is the driver whose boxes are sandboxes in E2B's cloud, or on
// another server with E2B's protocol. The guest is E2B's own agent. The guest's
// client can use it because the protocol is the same.
//
// Only package app imports it. [New] makes a [Driver]. Close ends the streams to
// its boxes; attached boxes then end. Sandboxes cost money, so none may leak:
// every sandbox is labelled with its state directory, so that List finds it, and
// has a timeout.
//
// Features that E2B's agent lacks are refused or missing: see proxy.go.
package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/semver"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/plane"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options are the parameters of New. StateDir and Key are required; the zero
// values of the others select E2B's cloud.
type Options struct {
	StateDir string
	Key      string // E2B_API_KEY
	Domain   string // E2B_DOMAIN; e2b.app if empty
	// APIURL is the URL of the control plane, and SandboxURL receives all
	// traffic to sandboxes. If empty, they are derived from Domain.
	APIURL     string // E2B_API_URL
	SandboxURL string // E2B_SANDBOX_URL
	Log        *slog.Logger

	// Bare skips the preparation of boxes. It is for tests, whose boxes share
	// the file system of the machine.
	Bare bool
}

// Labels of the driver's sandboxes, which E2B calls metadata.
const (
	labelState  = "glovebox-state"   // name of the state directory
	labelID     = "glovebox-sandbox" // ID of the sandbox
	labelOwner  = "glovebox-owner"   // process that holds it, if it is attached
	labelLimits = "glovebox-limits"  // requested limits, for receipts
	labelImage  = "glovebox-image"   // requested image, for snapshots
)

// Timeouts of sandboxes. An attached sandbox ends soon after its process. A
// detached sandbox outlasts a restart of the server.
const (
	attachedTTL = 2 * time.Minute
	detachedTTL = time.Hour
)

// defaultTemplate is the template for [sandbox.ImageHost]: E2B's template with
// Python and common packages, Node and a code interpreter.
const defaultTemplate = "code-interpreter-v1"

// minAgent is the first version of E2B's agent that accepts raw file content.
const minAgent = "v0.5.7"

// A Driver makes boxes at E2B.
type Driver struct {
	opts      Options
	control   *plane.Client
	traffic   *http.Client
	state     string // name of the state directory
	owner     *owner
	snapshots *snapshots.Keeper
	log       *slog.Logger
	server    *proxyServer

	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu     sync.Mutex
	boxes  map[*Box]struct{}
	closed bool
}

// New returns a driver. It sends no request to E2B.
func New(o Options) (*Driver, error) {
	if o.Domain == "" {
		o.Domain = "e2b.app"
	}
	if o.APIURL == "" {
		o.APIURL = "https://api." + o.Domain
	}
	for name, text := range map[string]string{"E2B_API_URL": o.APIURL, "E2B_SANDBOX_URL": o.SandboxURL} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: %q is not a URL", name, text)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir := filepath.Join(o.StateDir, "e2b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	state, err := stateName(filepath.Join(dir, "id"))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "name state directory: %w", err)
	}
	own, err := newOwner(filepath.Join(dir, "owners"))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "register process: %w", err)
	}
	d := &Driver{
		opts: o, state: state, owner: own, log: o.Log,
		control: &plane.Client{URL: strings.TrimSuffix(o.APIURL, "/"), Key: o.Key, HTTP: newClient(), Wait: wait},
		traffic: newClient(),
		boxes:   map[*Box]struct{}{},
	}
	d.snapshots = snapshots.New(d.control, filepath.Join(dir, "snapshots"), state, o.Log)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.server = newProxyServer()
	return d, nil
}

// newClient returns a client with its own connections.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.DisableCompression = 64, true
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // do not send the key to another server
	}}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stateName returns the name of a state directory. The first process creates it.
func stateName(file string) (string, error) {
	text, err := atomicfile.Once(file, []byte(strings.ToLower(rand.Text())), 0o600)
	if err != nil {
		return "", err
	}
	if len(text) != 26 {
		return "", fmt.Errorf("%s does not have a valid name", file)
	}
	return string(text), nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "e2b", Isolates: true, Boundary: sandbox.BoundaryMachine, OpaqueRefs: true, Features: driver.Features{Detach: true, Metered: true, Pause: true, ColdPause: true, Snapshot: true, WorkspaceCopied: true, Host: true, Remote: true}}
}

// Probe implements [driver.Driver].
func (d *Driver) Probe(ctx context.Context) error {
	if d.opts.Key == "" {
		return sandbox.WithHint(fmt.Errorf("%w: there is no API key for E2B", driver.ErrUnavailable), "set E2B_API_KEY")
	}
	if _, err := d.control.List(ctx, map[string]string{labelState: d.state}); err != nil {
		return sandbox.WithHint(fmt.Errorf("%w: %w", driver.ErrUnavailable, err), "%s", sandbox.HintOf(err))
	}
	return nil
}

// check refuses unsupported specs before any work starts.
func (d *Driver) check(spec *driver.Spec) error {
	if !sandbox.ValidID(spec.ID) {
		return sandbox.Errorf(sandbox.Invalid, "%q is not a sandbox's identifier", spec.ID)
	}
	if spec.Image == "" {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "there is no image"), "use the name of an E2B template, or \"host\" for E2B's code interpreter")
	}
	if spec.Network != sandbox.NetworkNone {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network %q: sandboxes of driver e2b have no network", spec.Network), "use none")
	}
	if spec.Workspace != "" {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a workspace cannot be mounted in E2B's cloud"), "copy the files into the sandbox and out of it")
	}
	if spec.Containers {
		return driver.RefuseContainers()
	}
	if !slices.Contains(spec.AllowUnenforced, sandbox.ControlProcesses) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "processes: E2B does not limit the number of processes"), "accept it with --allow-unenforced processes")
	}
	return nil
}

// Create implements [driver.Driver]. The template determines CPUs, memory and
// disk, and E2B reports them only for an existing sandbox. So Create removes a
// sandbox that has more than was requested.
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	const op = "create box"
	if err := d.check(spec); err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	b, err := d.make(ctx, spec, nil)
	if err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	return b, nil
}

// make makes a box, of a snapshot if rec is not nil. After an error there is no box.
func (d *Driver) make(ctx context.Context, spec *driver.Spec, rec *snapshots.Record) (*Box, error) {
	b, err := d.create(ctx, spec, rec)
	if err == nil {
		return b, nil
	}
	// The sandbox may exist in spite of the error.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), plane.RequestTimeout)
	defer cancel()
	left, lerr := d.control.List(clean, map[string]string{labelState: d.state, labelID: spec.ID})
	for _, s := range left {
		lerr = errors.Join(lerr, d.control.Kill(clean, s.SandboxID))
	}
	if r, ok := errors.AsType[*plane.Refusal](err); ok && r.Status < 500 {
		lerr = nil // the request had no effect
	}
	if b != nil {
		b.cancel()
		lerr = errors.Join(lerr, b.contexts.forget())
	}
	return nil, errors.Join(err, lerr)
}

func (d *Driver) create(ctx context.Context, spec *driver.Spec, rec *snapshots.Record) (*Box, error) {
	ttl := attachedTTL
	limits, err := json.Marshal(spec.Limits)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{labelState: d.state, labelID: spec.ID, labelLimits: string(limits), labelImage: spec.Image}
	if spec.Detached {
		ttl = min(detachedTTL, spec.Limits.Lifetime)
	} else {
		labels[labelOwner] = d.owner.name
	}
	template := spec.Image
	if template == sandbox.ImageHost {
		template = defaultTemplate
	}
	if rec != nil {
		template = rec.Template
	}
	var made plane.Sandbox
	_, err = d.control.Call(ctx, http.MethodPost, "/v2/sandboxes", map[string]any{
		"templateID": template, "timeout": int64(max(ttl, time.Second) / time.Second), "metadata": labels, "allow_internet_access": false,
		// Without it, any client that knows the sandbox's name has full access.
		"secure": true,
	}, &made)
	if r, ok := errors.AsType[*plane.Refusal](err); ok && rec != nil && (r.Status == http.StatusNotFound || errors.Is(err, sandbox.NotFound)) {
		err = snapshots.ErrNone(rec.Template)
	}
	if err != nil {
		return nil, err
	}
	if !validRef.MatchString(made.SandboxID) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "E2B returned the invalid sandbox ID %.80q", made.SandboxID)
	}
	if !atLeast(made.EnvdVersion, minAgent) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "template %s has version %.20q of E2B's agent, which is too old", template, made.EnvdVersion),
			"build the template again")
	}
	b := d.newBox(&made, ttl)
	b.spec, b.image = spec.Limits, spec.Image
	receipt, err := b.Receipt(ctx)
	if err == nil {
		err = allowed(receipt, spec)
	}
	if err == nil && rec != nil {
		err = b.contexts.inherit(rec.Contexts)
	}
	if err == nil {
		err = b.prepare(ctx, spec, rec != nil)
	}
	if err == nil && !d.keep(b) {
		err = sandbox.Errorf(sandbox.Unavailable, "the driver is closed")
	}
	return b, err
}

// allowed returns an error if a limit is not enforced and the spec does not
// allow that.
func allowed(receipt sandbox.Receipt, spec *driver.Spec) error {
	for _, name := range receipt.Unenforced() {
		if !slices.Contains(spec.AllowUnenforced, name) {
			c := receipt.Control(name)
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s: the template gives %s, more than the %s asked for", name, c.Value, c.Asked),
				"use a template that has less, ask for as much, or accept it with --allow-unenforced %s", name)
		}
	}
	return nil
}

// validRef matches E2B's and Glovebox's names of sandboxes.
var validRef = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{3,63}$`)

// find returns a live sandbox of this state directory. It kills an attached
// sandbox whose process has ended, and returns ErrGone for it.
func (d *Driver) find(ctx context.Context, ref string) (*plane.Sandbox, error) {
	if !validRef.MatchString(ref) {
		return nil, fmt.Errorf("%w: %.80q is not a box of E2B", driver.ErrGone, ref)
	}
	s, err := d.control.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if s.Metadata[labelState] != d.state {
		return nil, fmt.Errorf("%w: sandbox %s belongs to another state directory", driver.ErrGone, ref)
	}
	if name := s.Metadata[labelOwner]; name != "" && !d.owner.alive(name) {
		if err := d.control.Kill(ctx, ref); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: the process that held the sandbox has ended", driver.ErrGone)
	}
	return s, nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	s, err := d.find(ctx, ref)
	if err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	ttl := detachedTTL
	if s.Metadata[labelOwner] != "" {
		ttl = attachedTTL
	}
	b := d.newBox(s, ttl)
	b.image = s.Metadata[labelImage]
	// If the label is not valid, the limits count as not requested.
	_ = json.Unmarshal([]byte(s.Metadata[labelLimits]), &b.spec)
	if !d.keep(b) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the driver is closed")
	}
	return b, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	all, err := d.control.List(ctx, map[string]string{labelState: d.state})
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, s := range all {
		refs = append(refs, s.Ref())
	}
	slices.Sort(refs)
	return refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	_, err := d.find(ctx, ref)
	if driver.IsGone(err) {
		return nil
	}
	if err == nil {
		err = d.control.Kill(ctx, ref)
	}
	return sandbox.Wrap(err, "discard box", "")
}

// keep registers a box for Close, and starts to renew its timeout. It returns
// false if the driver is closed.
func (d *Driver) keep(b *Box) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.boxes[b] = struct{}{}
	d.background.Go(b.extend)
	return true
}

// Close implements [driver.Driver]. Attached boxes reach their timeout within
// minutes, unless the engine has destroyed them before.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	boxes := slices.Collect(maps.Keys(d.boxes))
	d.mu.Unlock()
	d.cancel()
	for _, b := range boxes {
		b.hangUp()
	}
	d.background.Wait()
	d.server.close()
	d.control.HTTP.CloseIdleConnections()
	d.traffic.CloseIdleConnections()
	return d.owner.release()
}

// atLeast reports whether a version, such as 0.5.7-dev, is least or later. A
// preliminary version counts as the version itself.
func atLeast(version, least string) bool {
	number, _, _ := strings.Cut(version, "-")
	return semver.Compare("v"+number, least) >= 0 // an invalid version is before all
}
