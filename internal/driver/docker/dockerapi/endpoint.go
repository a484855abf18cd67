package dockerapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The container engines that this package knows.
const (
	Docker = "docker"
	Podman = "podman"
)

// Options select a container engine.
type Options struct {
	// Name is [Docker] or [Podman]. It selects where [Find] looks for the container
	// engine, and the name in messages.
	Name string
	// Host is the container engine's address, like unix:///var/run/docker.sock. If
	// it is empty, Find looks where the container engine's own tools look.
	Host string
	// Getenv returns the value of an environment variable.
	Getenv func(string) string
}

// An Endpoint is a possible address of a container engine.
type Endpoint struct {
	Host   string // unix:///var/run/docker.sock
	Source string // the origin of the address, for messages
	// certs is a directory with ca.pem, cert.pem and key.pem; empty for none.
	certs string
	// verify is false if the server's certificate is not to be checked.
	verify bool
	// named means that the user configured this endpoint, so no other is tried.
	named bool
}

// Endpoints returns the addresses to try, in order. If one was configured, it is
// the only one.
func Endpoints(opts Options) ([]Endpoint, error) {
	env := opts.Getenv
	if opts.Host != "" {
		return []Endpoint{{Host: opts.Host, Source: "the configuration", certs: env("DOCKER_CERT_PATH"), verify: true, named: true}}, nil
	}
	home := homeOf(env)
	if opts.Name == Podman {
		if host := env("CONTAINER_HOST"); host != "" {
			return []Endpoint{{Host: host, Source: "CONTAINER_HOST", verify: true, named: true}}, nil
		}
		return podmanSockets(env, home), nil
	}
	if host := env("DOCKER_HOST"); host != "" {
		e := Endpoint{Host: host, Source: "DOCKER_HOST", certs: env("DOCKER_CERT_PATH"), verify: env("DOCKER_TLS_VERIFY") != "", named: true}
		if e.certs == "" && e.verify {
			e.certs = filepath.Join(home, ".docker")
		}
		return []Endpoint{e}, nil
	}
	e, err := contextEndpoint(env)
	if err != nil || e != nil {
		if err != nil {
			return nil, err
		}
		return []Endpoint{*e}, nil
	}
	return dockerSockets(env, home), nil
}

// dockerSockets returns the default addresses of Docker Engine and compatible
// products.
func dockerSockets(env func(string) string, home string) []Endpoint {
	if runtime.GOOS == "windows" {
		return []Endpoint{{Host: "npipe:////./pipe/docker_engine", Source: "the default pipe"}}
	}
	all := []Endpoint{{Host: "unix:///var/run/docker.sock", Source: "the default socket"}}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, Endpoint{Host: "unix://" + dir + "/docker.sock", Source: "rootless Docker"})
	}
	if home != "" {
		for _, s := range []struct{ path, source string }{
			{".docker/run/docker.sock", "Docker Desktop"},
			{".docker/desktop/docker.sock", "Docker Desktop"},
			{".colima/default/docker.sock", "Colima"},
			{".colima/docker.sock", "Colima"},
			{".orbstack/run/docker.sock", "OrbStack"},
			{".rd/docker.sock", "Rancher Desktop"},
		} {
			all = append(all, Endpoint{Host: "unix://" + filepath.Join(home, s.path), Source: s.source})
		}
	}
	return all
}

// podmanSockets returns the default addresses of Podman's service.
func podmanSockets(env func(string) string, home string) []Endpoint {
	if runtime.GOOS == "windows" {
		return []Endpoint{{Host: "npipe:////./pipe/podman-machine-default", Source: "the default pipe"}}
	}
	var all []Endpoint
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, Endpoint{Host: "unix://" + dir + "/podman/podman.sock", Source: "rootless Podman"})
	}
	all = append(all, Endpoint{Host: "unix:///run/podman/podman.sock", Source: "the default socket"})
	if home != "" {
		all = append(all, Endpoint{Host: "unix://" + filepath.Join(home, ".local/share/containers/podman/machine/podman.sock"), Source: "Podman's machine"})
	}
	return all
}

// contextEndpoint returns the endpoint of Docker's current context, or nil if that
// is the default context.
func contextEndpoint(env func(string) string) (*Endpoint, error) {
	dir := configDir(env)
	name, source := env("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	if name == "" {
		var conf struct {
			CurrentContext string `json:"currentContext"`
		}
		path := filepath.Join(dir, "config.json")
		if err := readJSON(path, &conf); err != nil {
			return nil, err
		}
		name, source = conf.CurrentContext, path
	}
	if name == "" || name == "default" {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	path := filepath.Join(dir, "contexts", "meta", id, "meta.json")
	if err := readJSON(path, &meta); err != nil {
		return nil, err
	}
	host := meta.Endpoints["docker"].Host
	if host == "" {
		return nil, container.Unavailable(sandbox.Errorf(sandbox.NotFound, "Docker context %q, named by %s, does not exist", name, source),
			"choose another with: docker context use NAME")
	}
	e := &Endpoint{Host: host, Source: "Docker context " + name, verify: !meta.Endpoints["docker"].SkipTLSVerify, named: true}
	if certs := filepath.Join(dir, "contexts", "tls", id, "docker"); isDir(certs) {
		e.certs = certs
	}
	return e, nil
}

func homeOf(env func(string) string) string {
	if home := env("HOME"); home != "" {
		return home
	}
	home, _ := os.UserHomeDir()
	return home
}

// configDir returns the directory where Docker's tools keep contexts and
// credentials.
func configDir(env func(string) string) string {
	if dir := env("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(homeOf(env), ".docker")
}

// readJSON decodes a file into v. A missing file leaves v unchanged.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "read Docker's configuration %s: %w", path, err), "mend the file, or set DOCKER_HOST")
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// userAgent identifies this client to the container engine.
const userAgent = "glovebox"

// dial returns a client of the container engine at e. It does not connect yet.
func (e Endpoint) dial() (*client.Client, error) {
	opts := []client.Opt{client.WithHost(e.Host), client.WithUserAgent(userAgent)}
	scheme, _, _ := strings.Cut(e.Host, "://")
	switch scheme {
	case "unix", "npipe", "tcp", "http", "https":
	case "ssh":
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unsupported, "%s (from %s): engines are not reached by ssh", e.Host, e.Source),
			"forward its socket: ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST, and set DOCKER_HOST=unix:///tmp/docker.sock")
	default:
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Invalid, "%q (from %s) is not the address of an engine", e.Host, e.Source),
			"write it like unix:///var/run/docker.sock or tcp://HOST:2376")
	}
	if e.certs != "" && scheme != "unix" && scheme != "npipe" {
		if !e.verify {
			return nil, container.Unavailable(sandbox.Errorf(sandbox.Unsupported, "%s (from %s): the server's certificate would not be checked", e.Host, e.Source),
				"set DOCKER_TLS_VERIFY=1, or make the context with skip-tls-verify=false")
		}
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(e.certs, "ca.pem"), filepath.Join(e.certs, "cert.pem"), filepath.Join(e.certs, "key.pem")))
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "%s (from %s): %w", e.Host, e.Source, err), "check the address and its certificates")
	}
	return c, nil
}

// explain returns the error for a container engine that does not answer, with a hint.
func (at Endpoint) explain(name string, err error) error {
	err = sandbox.Errorf(sandbox.Unavailable, "%s does not answer at %s (%s): %w", name, at.Host, at.Source, err)
	start := "start it: sudo systemctl start docker; or start Docker Desktop or Colima"
	rights := "add yourself to its group: sudo usermod -aG docker $USER, then log in again; that group is as good as root, so rootless Docker is the safer way"
	if name == Podman {
		start = "start its service: systemctl --user start podman.socket (for root: sudo systemctl start podman.socket)"
		rights = "use your own: systemctl --user start podman.socket, and leave CONTAINER_HOST unset"
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return container.Unavailable(err, "%s", rights)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), refused(err):
		if at.named {
			return container.Unavailable(err, "%s names it; change that, or %s", at.Source, start)
		}
		return container.Unavailable(err, "%s", start)
	}
	return container.Unavailable(err, "see what it says: %s info", name)
}

// refused reports whether the client could not connect. Some of its errors say so
// only in their text.
func refused(err error) bool {
	return client.IsErrConnectionFailed(err) || strings.Contains(err.Error(), "connect to the ")
}
