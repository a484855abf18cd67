package docker

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

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An endpoint is a possible address of an engine.
type endpoint struct {
	host   string // unix:///var/run/docker.sock
	source string // the origin of the address, for messages
	// certs is a directory with ca.pem, cert.pem and key.pem; empty for none.
	certs string
	// verify is false if the server's certificate is not to be checked.
	verify bool
	// named means that the user configured this endpoint, so no other is tried.
	named bool
}

// endpoints returns the addresses to try, in order. If one was configured, it is
// the only one.
func endpoints(opts *Options) ([]endpoint, error) {
	env := opts.Getenv
	if opts.Host != "" {
		return []endpoint{{host: opts.Host, source: "the configuration", certs: env("DOCKER_CERT_PATH"), verify: true, named: true}}, nil
	}
	home := homeOf(env)
	if opts.Engine == Podman {
		if host := env("CONTAINER_HOST"); host != "" {
			return []endpoint{{host: host, source: "CONTAINER_HOST", verify: true, named: true}}, nil
		}
		return podmanSockets(env, home), nil
	}
	if host := env("DOCKER_HOST"); host != "" {
		e := endpoint{host: host, source: "DOCKER_HOST", certs: env("DOCKER_CERT_PATH"), verify: env("DOCKER_TLS_VERIFY") != "", named: true}
		if e.certs == "" && e.verify {
			e.certs = filepath.Join(home, ".docker")
		}
		return []endpoint{e}, nil
	}
	e, err := contextEndpoint(env)
	if err != nil || e != nil {
		if err != nil {
			return nil, err
		}
		return []endpoint{*e}, nil
	}
	return dockerSockets(env, home), nil
}

// dockerSockets returns the default addresses of Docker Engine and compatible
// products.
func dockerSockets(env func(string) string, home string) []endpoint {
	if runtime.GOOS == "windows" {
		return []endpoint{{host: "npipe:////./pipe/docker_engine", source: "the default pipe"}}
	}
	all := []endpoint{{host: "unix:///var/run/docker.sock", source: "the default socket"}}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, endpoint{host: "unix://" + dir + "/docker.sock", source: "rootless Docker"})
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
			all = append(all, endpoint{host: "unix://" + filepath.Join(home, s.path), source: s.source})
		}
	}
	return all
}

// podmanSockets returns the default addresses of Podman's service.
func podmanSockets(env func(string) string, home string) []endpoint {
	if runtime.GOOS == "windows" {
		return []endpoint{{host: "npipe:////./pipe/podman-machine-default", source: "the default pipe"}}
	}
	var all []endpoint
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, endpoint{host: "unix://" + dir + "/podman/podman.sock", source: "rootless Podman"})
	}
	all = append(all, endpoint{host: "unix:///run/podman/podman.sock", source: "the default socket"})
	if home != "" {
		all = append(all, endpoint{host: "unix://" + filepath.Join(home, ".local/share/containers/podman/machine/podman.sock"), source: "Podman's machine"})
	}
	return all
}

// contextEndpoint returns the endpoint of Docker's current context, or nil if that
// is the default context.
func contextEndpoint(env func(string) string) (*endpoint, error) {
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
		return nil, unavailable(sandbox.Errorf(sandbox.NotFound, "Docker context %q, named by %s, does not exist", name, source),
			"choose another with: docker context use NAME")
	}
	e := &endpoint{host: host, source: "Docker context " + name, verify: !meta.Endpoints["docker"].SkipTLSVerify, named: true}
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
		return unavailable(sandbox.Errorf(sandbox.Unavailable, "read Docker's configuration %s: %w", path, err), "mend the file, or set DOCKER_HOST")
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// userAgent identifies this client to the engine.
const userAgent = "glovebox"

// dial returns a client of the engine at e. It does not connect yet.
func (e endpoint) dial() (*client.Client, error) {
	opts := []client.Opt{client.WithHost(e.host), client.WithUserAgent(userAgent)}
	scheme, _, _ := strings.Cut(e.host, "://")
	switch scheme {
	case "unix", "npipe", "tcp", "http", "https":
	case "ssh":
		return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "%s (from %s): engines are not reached by ssh", e.host, e.source),
			"forward its socket: ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST, and set DOCKER_HOST=unix:///tmp/docker.sock")
	default:
		return nil, unavailable(sandbox.Errorf(sandbox.Invalid, "%q (from %s) is not the address of an engine", e.host, e.source),
			"write it like unix:///var/run/docker.sock or tcp://HOST:2376")
	}
	if e.certs != "" && scheme != "unix" && scheme != "npipe" {
		if !e.verify {
			return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "%s (from %s): the server's certificate would not be checked", e.host, e.source),
				"set DOCKER_TLS_VERIFY=1, or make the context with skip-tls-verify=false")
		}
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(e.certs, "ca.pem"), filepath.Join(e.certs, "cert.pem"), filepath.Join(e.certs, "key.pem")))
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, unavailable(sandbox.Errorf(sandbox.Unavailable, "%s (from %s): %w", e.host, e.source, err), "check the address and its certificates")
	}
	return c, nil
}
