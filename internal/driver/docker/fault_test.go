package docker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDockerFaults has an engine do what engines do to those who rely on them.
func TestDockerFaults(t *testing.T) { testFaults(t, docker.Docker, dockerEnv) }

func TestPodmanFaults(t *testing.T) { testFaults(t, docker.Podman, podmanEnv) }

func testFaults(t *testing.T, engine, variable string) {
	need(t, engine, variable)
	f := &faults{engine: engine, socket: strings.TrimPrefix(os.Getenv(variable), "unix://")}
	h := harness(engine, variable)
	f.spec = h.Spec
	t.Run("Killed", f.killed)
	t.Run("VolumesGone", f.volumesGone)
	t.Run("SocketGone", f.socketGone)
	t.Run("SmallImage", f.smallImage)
	t.Run("Images", f.images)
	t.Run("Workspaces", f.workspaces)
	t.Run("OldAPI", f.oldAPI)
}

type faults struct {
	engine, socket string
	spec           func() *driver.Spec
}

func (f *faults) open(t *testing.T, host string) *docker.Driver {
	t.Helper()
	d, err := docker.New(docker.Options{Engine: f.engine, Host: host, StateDir: t.TempDir(), Guest: os.Getenv(guestEnv)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (f *faults) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.WithHost("unix://" + f.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// killed kills a container behind the driver's back, then removes one.
func (f *faults) killed(t *testing.T) {
	d, c := f.open(t, "unix://"+f.socket), f.client(t)
	b := drivertest.Launch(t, d, f.spec())
	if _, err := c.ContainerKill(t.Context(), b.Ref(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	gone(t, d, b.Box)
	in, ok, err := driver.ReadIncidents(t.Context(), b.Box)
	if err != nil || !ok || in.Alive || in.MemoryKills != 0 {
		t.Errorf("Incidents of a container that was killed from outside: %+v, %t, %v", in, ok, err)
	}
	if refs, err := d.List(t.Context()); err != nil || len(refs) != 1 {
		t.Errorf("List: %q, %v; want what is left of the container", refs, err)
	}
	b = drivertest.Launch(t, d, f.spec())
	if _, err := c.ContainerRemove(t.Context(), b.Ref(), client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	gone(t, d, b.Box)
}

// patience bounds what tests wait for.
const patience = 10 * time.Second

// gone waits until a box says that it is.
func gone(t *testing.T, d driver.Driver, b driver.Box) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := b.Dial(t.Context())
		if driver.IsGone(err) {
			break
		}
		if err == nil {
			conn.Close()
		}
		if time.Now().After(deadline) {
			t.Fatalf("Dial of a box whose container is gone: %v, want ErrGone", err)
		}
	}
	if _, err := d.Attach(t.Context(), b.Ref()); !driver.IsGone(err) {
		t.Errorf("Attach to a box whose container is gone: %v", err)
	}
}

// volumesGone removes what boxes share; the next box has it again.
func (f *faults) volumesGone(t *testing.T) {
	d, c := f.open(t, "unix://"+f.socket), f.client(t)
	b := drivertest.Launch(t, d, f.spec())
	b.Answers(t, "first")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.VolumeList(t.Context(), client.VolumeListOptions{Filters: make(client.Filters).Add("name", "glovebox-")})
	if err != nil || len(list.Items) < 2 {
		t.Fatalf("volumes that boxes share: %d, %v", len(list.Items), err)
	}
	for _, v := range list.Items {
		// One that another test uses stays, which is as good.
		_, _ = c.VolumeRemove(t.Context(), v.Name, client.VolumeRemoveOptions{})
	}
	drivertest.Launch(t, d, f.spec()).Answers(t, "after the volumes were removed")
}

// socketGone has the engine vanish and come back.
func (f *faults) socketGone(t *testing.T) {
	p := &proxy{to: f.socket, path: filepath.Join(shortDir(t), "engine.sock")}
	p.start(t)
	t.Cleanup(p.stop) // after what is made behind it was removed
	d := f.open(t, "unix://"+p.path)
	spec := f.spec()
	spec.Detached = true
	b := drivertest.Launch(t, d, spec)
	b.Answers(t, "while the engine is there")
	p.stop()
	if _, err := d.Create(t.Context(), f.spec()); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("Create without an engine: %v (kind %s, hint %q), want kind unavailable and a hint", err, sandbox.KindOf(err), sandbox.HintOf(err))
	}
	if _, err := d.List(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("List without an engine: %v, want kind unavailable", err)
	}
	if conn, err := b.Dial(t.Context()); err == nil || driver.IsGone(err) {
		if err == nil {
			conn.Close()
		}
		t.Errorf("Dial without an engine: %v; nobody knows that the box is gone", err)
	}
	p.start(t)
	// A call on a connection that has not been seen to break yet may fail.
	for deadline := time.Now().Add(patience); b.Client.Health(t.Context()) != nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	b.Answers(t, "when the engine is there again")
	drivertest.Launch(t, d, f.spec()).Answers(t, "a box that was made after the engine came back")
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gbx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A proxy is a socket behind which an engine is, as long as it runs.
type proxy struct {
	to, path string

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
}

func (p *proxy) start(t *testing.T) {
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.l = l
	p.mu.Unlock()
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", p.to)
			if err != nil {
				near.Close()
				continue
			}
			p.mu.Lock()
			if p.l != l { // it was stopped meanwhile
				near.Close()
				far.Close()
			} else {
				p.conns = append(p.conns, near, far)
			}
			p.mu.Unlock()
			pipe := func(a, b net.Conn) {
				io.Copy(a, b)
				a.(*net.UnixConn).CloseWrite()
			}
			go pipe(near, far)
			go pipe(far, near)
		}
	}()
}

func (p *proxy) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil {
		p.l.Close()
	}
	p.l = nil
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// smallImage makes a box of an image that has a busybox and nothing else: no
// users, no directories, no libraries.
func (f *faults) smallImage(t *testing.T) {
	d := f.open(t, "unix://"+f.socket)
	spec := f.spec()
	spec.Image = "localhost/glovebox-test:busybox"
	b := drivertest.Launch(t, d, spec)
	if out := b.MustSh(t, "echo x > file; cat file; id -un; echo $HOME; echo y > /tmp/y; ls /home"); out != "x\nuser\n/home/user\nuser\n" {
		t.Errorf("in a box of a small image: %q", out)
	}
	if r := b.MustRun(t, drivertest.Cmd{Shell: "echo x > /bin/new", User: sandbox.Root}); r.End.Code() == 0 {
		t.Error("root writes to a read-only root")
	}
}

// images lists, names and looks for images.
func (f *faults) images(t *testing.T) {
	d := f.open(t, "unix://"+f.socket)
	ctx := context.WithoutCancel(t.Context())
	list, err := d.Images(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, i := range list {
		found = found || strings.Contains(i.Name, "glovebox-test:python3") && i.Local && i.SizeBytes > 1<<20
		// By that name the engine finds out whose an image is.
		if name, err := d.ImageName(i.Name); i.Name != "" && (err != nil || name != i.Name) {
			t.Errorf("the name of %q is %q: %v", i.Name, name, err)
		}
	}
	if !found {
		t.Errorf("the test's image is not among %+v", list)
	}
	one, err := d.PullImage(ctx, driver.ImagePull{Ref: testImage, Missing: true})
	if err != nil || one.ID == "" || !strings.HasPrefix(one.Platform, "linux/") {
		t.Errorf("PullImage of one that is here: %+v, %v", one, err)
	}
	for _, ref := range []string{"localhost:1/no/such:image", "../../etc", "UPPER CASE", "python@sha256:" + strings.Repeat("0", 64)} {
		if _, err := d.Image(ctx, ref); err == nil || sandbox.HintOf(err) == "" {
			t.Errorf("Image(%q): %v (hint %q), want an error and a hint", ref, err, sandbox.HintOf(err))
		}
		if _, err := d.RemoveImage(ctx, ref); err == nil {
			t.Errorf("RemoveImage(%q) succeeds", ref)
		}
	}
}

// oldAPI speaks to an engine that knows no newer API than 1.40, as Docker 19.03.
func (f *faults) oldAPI(t *testing.T) {
	const version = "1.40"
	to := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine"
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.socket)
		}},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Api-Version", version)
			return nil
		},
	}
	l, err := net.Listen("unix", filepath.Join(shortDir(t), "engine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_ping" && !strings.HasPrefix(r.URL.Path, "/v"+version+"/") {
			http.Error(w, `{"message":"client version is too new. Maximum supported API version is `+version+`"}`, http.StatusBadRequest)
			return
		}
		calls.Add(1)
		to.ServeHTTP(w, r)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	d := f.open(t, "unix://"+l.Addr().String())
	b := drivertest.Launch(t, d, f.spec())
	b.Answers(t, "by an old API")
	if refs, err := d.List(t.Context()); err != nil || len(refs) != 1 {
		t.Errorf("List: %q, %v", refs, err)
	}
	if _, err := d.Images(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if calls.Load() == 0 {
		t.Error("nothing was asked")
	}
}
