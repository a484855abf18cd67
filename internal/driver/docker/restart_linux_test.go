package docker_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An ownEngine is a Docker Engine of one test, which may do with it what others
// could not bear. All that it has is in memory.
type ownEngine struct {
	dir string // has "data", of a size of its own
	cmd *exec.Cmd
}

// ownEngineBytes is room for a busybox, a guest and some boxes.
const ownEngineBytes = 96 << 20

func newOwnEngine(t *testing.T) *ownEngine {
	need(t, docker.Docker, dockerEnv)
	if os.Geteuid() != 0 {
		t.Skip("only root starts an engine")
	}
	e := &ownEngine{dir: shortDir(t)}
	data := e.data()
	if err := os.Mkdir(data, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("test", data, "tmpfs", 0, "mode=711,size="+strconv.Itoa(ownEngineBytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.stop(t, syscall.SIGTERM)
		// What a killed engine had mounted, it does not unmount.
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Error(err)
		}
		lines := strings.Split(string(mounts), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			if at := strings.Fields(lines[i]); len(at) > 1 && strings.HasPrefix(at[1], e.dir+"/") {
				err := syscall.Unmount(at[1], 0)
				// What a killed engine had started may end only now.
				for deadline := time.Now().Add(patience); err == syscall.EBUSY && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
					err = syscall.Unmount(at[1], 0)
				}
				if err != nil {
					t.Errorf("unmount %s: %v", at[1], err)
				}
			}
		}
	})
	e.start(t)
	c := e.client(t)
	resp, err := c.ImageImport(t.Context(), client.ImageImportSource{Source: bytes.NewReader(imagetest.Busybox(t)), SourceName: "-"},
		ownImage, client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if _, err := said.ReadFrom(resp); err != nil {
		t.Fatal(err)
	}
	resp.Close()
	return e
}

const ownImage = "localhost/own:busybox"

func (e *ownEngine) data() string { return filepath.Join(e.dir, "data") }
func (e *ownEngine) host() string { return "unix://" + filepath.Join(e.dir, "s") }

func (e *ownEngine) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.WithHost(e.host()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (e *ownEngine) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.cmd = exec.Command("dockerd", "--host", e.host(), "--data-root", e.data(), "--exec-root", filepath.Join(e.dir, "x"),
		"--pidfile", filepath.Join(e.dir, "pid"), "--storage-driver", "overlay2", "--bridge", "none", "--iptables=false", "--ip-masq=false")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := e.client(t)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := c.Ping(t.Context(), client.PingOptions{}); err == nil {
			return
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			t.Fatalf("the engine does not start:\n%s", said)
		}
	}
}

func (e *ownEngine) stop(t *testing.T, how syscall.Signal) {
	t.Helper()
	if e.cmd == nil {
		return
	}
	if err := e.cmd.Process.Signal(how); err != nil {
		t.Error(err)
	}
	_ = e.cmd.Wait() // says how it ended, which is known
	e.cmd = nil
	// Its containerd ends with it. Where nobody reaps that, the next engine takes
	// it for one that runs.
	_ = os.Remove(filepath.Join(e.dir, "x/containerd/containerd.pid"))
}

// TestDockerRestarts ends an engine under its boxes, starts it again, and has it
// run out of what it needs. It is one test, as to start an engine takes seconds.
func TestDockerRestarts(t *testing.T) {
	e := newOwnEngine(t)
	f := &faults{engine: docker.Docker, socket: strings.TrimPrefix(e.host(), "unix://")}
	f.spec = func() *driver.Spec {
		spec := harness(docker.Docker, dockerEnv).Spec()
		spec.Image, spec.Detached = ownImage, true
		return spec
	}
	d := f.open(t, e.host())
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			attached := f.spec()
			attached.Detached = false
			boxes := []*drivertest.Box{drivertest.Launch(t, d, f.spec()), drivertest.Launch(t, d, attached)}
			for _, b := range boxes {
				b.Answers(t, "before the engine ends")
			}
			e.stop(t, how)
			if _, err := d.Create(t.Context(), f.spec()); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
				t.Errorf("Create without an engine: %v (kind %s, hint %q)", err, sandbox.KindOf(err), sandbox.HintOf(err))
			}
			e.start(t)
			for _, b := range boxes {
				gone(t, d, b.Box)
			}
			drivertest.Launch(t, d, f.spec()).Answers(t, "a box that was made after the engine came back")
			for _, b := range boxes {
				if err := b.Destroy(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if refs, err := d.List(t.Context()); err != nil || len(refs) != 1 {
				t.Errorf("List: %q, %v; want the one box that runs", refs, err)
			}
		})
	}
	t.Run("DiskFull", func(t *testing.T) {
		b := drivertest.Launch(t, d, f.spec())
		b.Answers(t, "before the disk is full")
		filler := filepath.Join(e.data(), "filler")
		fill(t, filler)
		before, err := d.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Create(t.Context(), f.spec()); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
			t.Errorf("Create on a full disk: %v (kind %s, hint %q), want kind exhausted and a hint", err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
		b.Answers(t, "while the disk is full")
		if after, err := d.List(t.Context()); err != nil || len(after) != len(before) {
			t.Errorf("a box that could not be made left something: %q before, %q after, %v", before, after, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		drivertest.Launch(t, d, f.spec()).Answers(t, "when there is room again")
	})
	t.Run("ImageRemoved", func(t *testing.T) {
		b := drivertest.Launch(t, d, f.spec())
		if _, err := e.client(t).ImageRemove(t.Context(), ownImage, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		b.Answers(t, "when its image has no name any more")
		if _, err := d.Create(t.Context(), f.spec()); err == nil || sandbox.HintOf(err) == "" {
			t.Errorf("Create of an image that was removed: %v (hint %q)", err, sandbox.HintOf(err))
		}
	})
}

// fill leaves no room where name is.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := ownEngineBytes; size >= 4096; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
