package docker

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestEndpoints(t *testing.T) {
	home := t.TempDir()
	dockerPlace, podmanPlace := "unix:///var/run/docker.sock", "unix:///run/user/7/podman/podman.sock"
	if runtime.GOOS == "windows" {
		dockerPlace, podmanPlace = "npipe:////./pipe/docker_engine", "npipe:////./pipe/podman-machine-default"
	}
	sum := sha256.Sum256([]byte("far"))
	id := hex.EncodeToString(sum[:])
	write(t, filepath.Join(home, ".docker/contexts/meta", id, "meta.json"), `{"Name":"far","Endpoints":{"docker":{"Host":"tcp://far:2376","SkipTLSVerify":false}}}`)
	write(t, filepath.Join(home, ".docker/contexts/tls", id, "docker", "ca.pem"), "")
	tests := []struct {
		name, engine, host string
		env                map[string]string
		config             string // ~/.docker/config.json
		want               string // the first
		only               bool
		err                string
	}{
		{name: "nothing", engine: Docker, want: dockerPlace},
		{name: "configured", engine: Docker, host: "tcp://a:1", env: map[string]string{"DOCKER_HOST": "tcp://b:1"}, want: "tcp://a:1", only: true},
		{name: "DOCKER_HOST", engine: Docker, env: map[string]string{"DOCKER_HOST": "tcp://b:1", "DOCKER_CONTEXT": "far"}, want: "tcp://b:1", only: true},
		{name: "DOCKER_CONTEXT", engine: Docker, env: map[string]string{"DOCKER_CONTEXT": "far"}, want: "tcp://far:2376", only: true},
		{name: "current context", engine: Docker, config: `{"currentContext":"far"}`, want: "tcp://far:2376", only: true},
		{name: "default context", engine: Docker, config: `{"currentContext":"default"}`, want: dockerPlace},
		{name: "no such context", engine: Docker, config: `{"currentContext":"gone"}`, err: "does not exist"},
		{name: "broken configuration", engine: Docker, config: `{`, err: "config.json"},
		{name: "podman", engine: Podman, env: map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "DOCKER_HOST": "tcp://b:1"}, want: podmanPlace},
		{name: "CONTAINER_HOST", engine: Podman, env: map[string]string{"CONTAINER_HOST": "unix:///x"}, want: "unix:///x", only: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			write(t, filepath.Join(home, ".docker/config.json"), test.config+"\n")
			if test.config == "" {
				os.Remove(filepath.Join(home, ".docker/config.json"))
			}
			getenv := func(name string) string {
				if name == "HOME" {
					return home
				}
				return test.env[name]
			}
			got, err := endpoints(&Options{Engine: test.engine, Host: test.host, Getenv: getenv})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || sandbox.HintOf(err) == "" || !errors.Is(err, driver.ErrUnavailable) {
					t.Fatalf("got %v, %v; want an error with %q and a hint", got, err, test.err)
				}
				return
			}
			if err != nil || len(got) == 0 || got[0].host != test.want || test.only && len(got) != 1 {
				t.Fatalf("got %+v, %v; want %s first", got, err, test.want)
			}
			if strings.HasPrefix(test.want, "tcp://far") && (got[0].certs == "" || !got[0].verify) {
				t.Errorf("the context's certificates are not used: %+v", got[0])
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAddresses(t *testing.T) {
	for host, want := range map[string]string{"ssh://host": "ssh -nNT", "nonsense": "unix://", "ftp://x": "unix://"} {
		_, err := endpoint{host: host, source: "a test"}.dial()
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(sandbox.HintOf(err), want) {
			t.Errorf("%s: %v (hint %q), want a hint with %q", host, err, sandbox.HintOf(err), want)
		}
	}
	if _, err := (endpoint{host: "tcp://h:1", certs: "/nowhere", verify: false}).dial(); err == nil {
		t.Error("an engine is reached whose certificate nobody checks")
	}
}

func TestNotThere(t *testing.T) {
	d, err := New(Options{Engine: Docker, Host: "unix:///nowhere/docker.sock", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(sandbox.HintOf(err), "start") {
		t.Errorf("Probe without an engine: %v (hint %q)", err, sandbox.HintOf(err))
	}
	checks := Doctor(t.Context(), Options{Engine: Docker, Host: "unix:///nowhere/docker.sock"})
	if len(checks) != 1 || !checks[0].Fatal || checks[0].Fix == "" {
		t.Errorf("Doctor without an engine: %+v", checks)
	}
}

// frames encodes output as an engine does.
func frames(pairs ...string) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		var h [8]byte
		h[0] = pairs[i][0] - '0'
		binary.BigEndian.PutUint32(h[4:], uint32(len(pairs[i+1])))
		b = append(append(b, h[:]...), pairs[i+1]...)
	}
	return b
}

func TestStdio(t *testing.T) {
	s := &stdio{r: bufio.NewReader(bytes.NewReader(frames("1", "one ", "2", "oh", "1", "", "1", "two", "3", " dear")))}
	got, err := io.ReadAll(s)
	if err != nil || string(got) != "one two" || s.stderr() != "oh dear" {
		t.Errorf("got %q, %q, %v", got, s.stderr(), err)
	}
	s = &stdio{r: bufio.NewReader(bytes.NewReader(frames("2", strings.Repeat("x", 100_000), "1", "end")))}
	if got, err := io.ReadAll(s); err != nil || string(got) != "end" || len(s.stderr()) != maxSaid {
		t.Errorf("a long standard error: %d bytes kept, then %q, %v", len(s.stderr()), got, err)
	}
	s = &stdio{r: bufio.NewReader(bytes.NewReader(frames("9", "x")))}
	if _, err := io.ReadAll(s); err == nil {
		t.Error("a stream of an unknown kind is read")
	}
}

func FuzzStdio(f *testing.F) {
	f.Add(frames("1", "out", "2", "err"))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &stdio{r: bufio.NewReader(bytes.NewReader(data))}
		n, _ := io.Copy(io.Discard, s)
		if n > int64(len(data)) || len(s.stderr()) > 3*maxSaid {
			t.Errorf("%d bytes became %d and %d", len(data), n, len(s.stderr()))
		}
	})
}

// TestPlaces checks that what may be written is never more than the limit, and
// that most of it is where programs start.
func TestPlaces(t *testing.T) {
	for _, disk := range []int64{sandbox.MinDiskBytes, 24 << 20, 1 << 30, 64 << 30} {
		for _, memory := range []int64{sandbox.MinMemoryBytes, 512 << 20, 16 << 30} {
			var sum, first int64
			for i, p := range places(sandbox.Limits{DiskBytes: disk, MemoryBytes: memory}, nil) {
				sum += p.bytes
				if i == 0 {
					first = p.bytes
				}
				if p.bytes > memory/2 {
					t.Errorf("disk %d, memory %d: %s takes %d", disk, memory, p.path, p.bytes)
				}
			}
			for _, writable := range [][]string{{"/app"}, {"/a", "/b", "/c"}} {
				var sum int64
				for _, p := range places(sandbox.Limits{DiskBytes: disk, MemoryBytes: memory}, writable) {
					sum += p.bytes
					if p.bytes > memory/2 {
						t.Errorf("disk %d, memory %d: %s takes %d", disk, memory, p.path, p.bytes)
					}
				}
				if sum > disk {
					t.Errorf("disk %d, memory %d, writable %v: %d in all", disk, memory, writable, sum)
				}
			}
			if sum > disk || first < min(disk*8/10, memory/2)-4096 {
				t.Errorf("disk %d, memory %d: %d in all, %d to work in", disk, memory, sum, first)
			}
		}
	}
}

func TestReceiptOf(t *testing.T) {
	good := func() *guestapi.Limits {
		return &guestapi.Limits{
			NoNewPrivs: true, Capabilities: "0000000000000000", Bounding: "00000000000000eb", Interfaces: []string{"lo"}, Seccomp: 2,
			Mounts: []guestapi.Mount{{Path: "/", Type: "overlay", Device: "0:1", ReadOnly: true, Bytes: 1 << 40}, {Path: "/data", Type: "tmpfs", Device: "0:2", Bytes: 1 << 20}},
			Group:  guestapi.Group{CPUs: 1, MemoryBytes: 512 << 20, Processes: 256 + guestThreads, GuestThreads: guestThreads + 3},
		}
	}
	b := &box{kept: &kept{Spec: driver.Spec{Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone}, Disk: diskMemory}}
	if weak := b.receiptOf(good(), "").Unenforced(); len(weak) > 0 {
		t.Fatalf("of a box that is confined: %v", weak)
	}
	rootless := good()
	rootless.Mounts = append(rootless.Mounts, guestapi.Mount{Path: "/dev/null", Type: "devtmpfs", Device: "0:6", Bytes: 12 << 30})
	if weak := b.receiptOf(rootless, "").Unenforced(); len(weak) > 0 {
		t.Errorf("of a box of a rootless engine: %v", weak)
	}
	for name, change := range map[sandbox.ControlName]func(*guestapi.Limits){
		sandbox.ControlCPU:       func(l *guestapi.Limits) { l.Group.CPUs = 0 },
		sandbox.ControlMemory:    func(l *guestapi.Limits) { l.Group.MemoryBytes = 0 },
		sandbox.ControlProcesses: func(l *guestapi.Limits) { l.Group.Processes = 0 },
		sandbox.ControlDisk: func(l *guestapi.Limits) {
			l.Mounts = append(l.Mounts, guestapi.Mount{Path: "/x", Type: "ext4", Device: "8:1", Bytes: 1 << 40})
		},
		sandbox.ControlNetwork:      func(l *guestapi.Limits) { l.Interfaces = []string{"lo", "eth0"} },
		sandbox.ControlCapabilities: func(l *guestapi.Limits) { l.Bounding = "00000000a80425fb" },
		sandbox.ControlSeccomp:      func(l *guestapi.Limits) { l.Seccomp = 0 },
		sandbox.ControlRootFS:       func(l *guestapi.Limits) { l.Mounts[0].ReadOnly = false },
	} {
		l := good()
		change(l)
		if weak := fmt.Sprint(b.receiptOf(l, "").Unenforced()); !strings.Contains(weak, string(name)) {
			t.Errorf("a box without %s: unenforced are %v", name, weak)
		}
	}
}

func TestExplainPull(t *testing.T) {
	e := &engine{name: Docker}
	for text, want := range map[string]string{
		"pull access denied for x, repository does not exist or may require 'docker login'": "log in",
		"no matching manifest for linux/arm64/v8 in the manifest list entries":              "build it",
		"manifest for python:9.9 not found: manifest unknown":                               "tag",
		"dial tcp: lookup registry-1.docker.io: no such host":                               "images load",
		"toomanyrequests: You have reached your unauthenticated pull rate limit":            "wait",
		"failed to register layer: write /usr/lib/x: no space left on device":               "prune",
	} {
		err := e.explainPull("x", errors.New(text))
		if !strings.Contains(sandbox.HintOf(err), want) {
			t.Errorf("%q: hint %q, want %q in it", text, sandbox.HintOf(err), want)
		}
	}
}

func TestKeepsWorkspaces(t *testing.T) {
	for _, test := range []struct {
		opts Options
		want bool
	}{
		{Options{Host: "unix:///run/docker.sock"}, false},
		{Options{Host: "tcp://far:2376"}, true},
		{Options{Host: "https://far"}, true},
		{Options{Host: "tcp://engine:2375", Inside: "/in", Outside: "/out"}, false},
		{Options{Host: "tcp://near:2375", Workspaces: WorkspacesDirectory}, false},
		{Options{Host: "unix:///run/docker.sock", Workspaces: WorkspacesVolume}, true},
		{Options{}, false},
	} {
		test.opts.Engine, test.opts.StateDir = Docker, t.TempDir()
		test.opts.Getenv = func(string) string { return "" }
		d, err := New(test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if dir, ok := d.KeepsWorkspaces(); ok != test.want || dir != keeperDir && ok {
			t.Errorf("%+v: %q, %v, want %v", test.opts, dir, ok, test.want)
		}
	}
}

func TestIsLeftover(t *testing.T) {
	now := time.Now()
	old, recent := now.Add(-time.Hour).Unix(), now.Add(-time.Minute).Unix()
	box := func(state string) map[string]string { return map[string]string{labelState: state} }
	for _, test := range []struct {
		name string
		c    container.Summary
		want bool
	}{
		{"another directory's, ended", container.Summary{State: "exited", Created: old, Labels: box("other")}, true},
		{"the same in Podman's words", container.Summary{State: "stopped", Created: old, Labels: box("other")}, true},
		{"another directory's, running", container.Summary{State: "running", Created: old, Labels: box("other")}, false},
		{"another directory's, being made", container.Summary{State: "created", Created: recent, Labels: box("other")}, false},
		{"our own", container.Summary{State: "exited", Created: old, Labels: box("own")}, false},
		{"what filled a volume", container.Summary{State: "created", Created: old, Labels: map[string]string{labelRole: roleFiller}}, true},
		{"what fills a volume", container.Summary{State: "created", Created: recent, Labels: map[string]string{labelRole: roleFiller}}, false},
	} {
		if got := isLeftover(&test.c, "own", now); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestSockets finds an engine by the sockets that its relatives listen at.
func TestSockets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("engines listen at pipes there")
	}
	if _, err := os.Stat("/var/run/docker.sock"); err == nil {
		t.Skip("there is an engine here, which is found first")
	}
	for _, path := range []string{
		"run/docker.sock", // rootless, in XDG_RUNTIME_DIR
		".docker/run/docker.sock", ".docker/desktop/docker.sock", ".colima/default/docker.sock", ".orbstack/run/docker.sock", ".rd/docker.sock",
	} {
		t.Run(path, func(t *testing.T) {
			home, err := os.MkdirTemp("", "gbs") // sockets need short paths
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(home) })
			socket := filepath.Join(home, path)
			if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Api-Version", "1.41")
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(r.URL.Path, "/info") {
					io.WriteString(w, `{"OSType":"linux","ServerVersion":"of a test"}`)
				}
			})}
			go s.Serve(l)
			defer s.Close()
			env := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": filepath.Join(home, "run")}
			e, err := findEngine(t.Context(), &Options{Engine: Docker, Getenv: func(name string) string { return env[name] }})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if e.at.host != "unix://"+socket || e.info.ServerVersion != "of a test" || e.ClientVersion() != "1.41" {
				t.Errorf("found %s, version %s, API %s", e.at.host, e.info.ServerVersion, e.ClientVersion())
			}
		})
	}
}

// TestKeeperRuntime: what keeps workspaces must not be on a kernel that follows
// links, as the one of a runtime for untrusted code may be.
func TestKeeperRuntime(t *testing.T) {
	order := client.ContainerCreateOptions{
		Config:     &container.Config{Labels: map[string]string{}},
		HostConfig: &container.HostConfig{Runtime: "runsc"},
	}
	keep(&order, "volume")
	if got := order.HostConfig.Runtime; got != "" {
		t.Errorf("the keeper has the runtime %q, want the engine's own", got)
	}
}
