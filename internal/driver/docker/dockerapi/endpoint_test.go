package dockerapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
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
			got, err := Endpoints(Options{Name: test.engine, Host: test.host, Getenv: getenv})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || sandbox.HintOf(err) == "" || !errors.Is(err, driver.ErrUnavailable) {
					t.Fatalf("got %v, %v; want an error with %q and a hint", got, err, test.err)
				}
				return
			}
			if err != nil || len(got) == 0 || got[0].Host != test.want || test.only && len(got) != 1 {
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
		_, err := Endpoint{Host: host, Source: "a test"}.dial()
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(sandbox.HintOf(err), want) {
			t.Errorf("%s: %v (hint %q), want a hint with %q", host, err, sandbox.HintOf(err), want)
		}
	}
	if _, err := (Endpoint{Host: "tcp://h:1", certs: "/nowhere", verify: false}).dial(); err == nil {
		t.Error("an engine is reached whose certificate nobody checks")
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
			e, err := Find(t.Context(), Options{Name: Docker, Getenv: func(name string) string { return env[name] }})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if e.At.Host != "unix://"+socket || e.Facts.ServerVersion != "of a test" || e.ClientVersion() != "1.41" {
				t.Errorf("found %s, version %s, API %s", e.At.Host, e.Facts.ServerVersion, e.ClientVersion())
			}
		})
	}
}
