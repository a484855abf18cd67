package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPrivateRegistry names registries at addresses that are not public: they are
// not asked, unless the operator asks or lists them.
func TestPrivateRegistry(t *testing.T) {
	reg := imagetest.New(t)
	ref := reg.Push(t, "x:1", imagetest.Image(t, v1.Config{}))
	asked := reg.Asked("")
	_, port, _ := strings.Cut(reg.Host, ":")
	for _, host := range []string{
		reg.Host, "localhost:" + port, "[::1]:" + port, "127.0.0.1:1", "192.168.0.1", "10.255.255.1:5000", "169.254.169.254", "100.100.100.200",
	} {
		_, err := newStore(t, nil).Pull(t.Context(), host+"/x:1", PullOptions{})
		if !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), "not a public address") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := reg.Asked("") - asked; n > 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	for name, c := range map[string]struct {
		registries []string
		anywhere   bool
	}{
		"Operator": {nil, true},
		"Listed":   {[]string{"docker.io", reg.Host}, false},
	} {
		s := newStore(t, func(o *Options) { o.Registries = c.registries })
		if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: c.anywhere}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A mirror is one that the operator named, for images of its registry only.
	s := newStore(t, func(o *Options) { o.Mirrors = map[string][]string{"registry.example": {reg.Host}} })
	if _, err := s.Pull(t.Context(), "registry.example/x:1", PullOptions{}); err != nil {
		t.Errorf("by a mirror: %v", err)
	}
	if _, err := s.Pull(t.Context(), ref, PullOptions{}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("the mirror itself: %v", err)
	}
}

// only127001 takes one address of this machine for a public one.
func only127001(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") }

// victim returns the address of a service that is not public, and how many
// connections it had.
func victim(t *testing.T) (host string, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler: http.NotFoundHandler(),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		},
	}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String(), connections
}

// TestRegistrySendsElsewhere has a public registry send us to an address that is
// not: for a token, and for a part of an image.
func TestRegistrySendsElsewhere(t *testing.T) {
	for name, fault := range map[string]func(host string) http.HandlerFunc{
		"Realm": func(host string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		},
		"Redirect": func(host string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/" {
					http.Redirect(w, r, "http://"+host+"/internal", http.StatusTemporaryRedirect)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(nil)
			t.Cleanup(srv.Close)
			host, connections := victim(t)
			srv.Config.Handler = fault(host)
			s := newStore(t, func(o *Options) { o.Public = only127001 })
			_, err := s.Pull(t.Context(), srv.Listener.Addr().String()+"/x:1", PullOptions{})
			if !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), host[:len("127.0.0.2")]) {
				t.Errorf("%v", err)
			}
			if n := connections.Load(); n > 0 {
				t.Errorf("%d connections came to the address", n)
			}
		})
	}
}

// TestRegistryByProxy has requests go through a proxy, which connects for us: what
// it is asked for is looked up first, and refused alike.
func TestRegistryByProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"inside.example": "10.0.0.1", "outside.example": "8.8.8.8"}
	with := func(registries ...string) *Store {
		return newStore(t, func(o *Options) {
			o.Registries = registries
			o.Proxy = http.ProxyURL(address)
			o.Lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
				if names[name] == "" {
					return nil, errors.New("no such host")
				}
				return []netip.Addr{netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr(names[name])}, nil
			}
		})
	}
	for _, host := range []string{"inside.example", "nowhere.example", "10.0.0.1", "169.254.169.254:443", "127.0.0.1:5000"} {
		if _, err := with().Pull(t.Context(), host+"/x:1", PullOptions{}); err == nil || asked.Load() > 0 {
			t.Errorf("%s: %v; the proxy was asked %d times", host, err, asked.Swap(0))
		}
	}
	for host, s := range map[string]*Store{"outside.example": with(), "inside.example": with("inside.example"), "nowhere.example": with("nowhere.example")} {
		if _, err := s.Pull(t.Context(), host+"/x:1", PullOptions{}); err == nil || asked.Swap(0) == 0 {
			t.Errorf("%s: %v; the proxy was not asked", host, err)
		}
	}
	// The proxy is no registry for anybody.
	direct := newStore(t, func(o *Options) { o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } })
	if _, err := direct.Pull(t.Context(), address.Host+"/x:1", PullOptions{}); err == nil || asked.Load() > 0 {
		t.Errorf("the proxy's own address: %v", err)
	}
}

// TestName shows that an image is listed under the name that is told beforehand.
func TestName(t *testing.T) {
	reg := imagetest.New(t)
	i := imagetest.Image(t, v1.Config{})
	reg.Push(t, "team/x:latest", i)
	digest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{reg.Host + "/team/x", reg.Host + "/team/x:latest", reg.Host + "/team/x@" + digest.String()} {
		s := newStore(t, nil)
		if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
			t.Fatal(err)
		}
		name, err := Name(ref)
		list, listErr := s.List(t.Context())
		if err != nil || listErr != nil || len(list) != 1 || list[0].Name != name {
			t.Errorf("%s: %q, %v; listed are %+v, %v", ref, name, err, list, listErr)
		}
	}
	for ref, want := range map[string]string{"python": "python:latest", "docker.io/library/python:3": "python:3", "index.docker.io/a/b": "a/b:latest"} {
		if name, err := Name(ref); err != nil || name != want {
			t.Errorf("%s: %q, %v; want %q", ref, name, err, want)
		}
	}
}

// TestSharedDigits has two images whose IDs begin alike: what both begin with
// names neither.
func TestSharedDigits(t *testing.T) {
	id := func(last string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 63) + last} }
	x := &index{Images: map[string]*record{"one": {Config: id("1")}, "also one": {Config: id("1")}, "two": {Config: id("2")}}}
	if name, r, err := x.byID(strings.Repeat("a", minID)); !errors.Is(err, sandbox.Conflict) || r != nil {
		t.Errorf("%q, %v", name, err)
	}
	if name, r, err := x.byID(id("1").String()); err != nil || r != x.Images[name] || r.Config != id("1") {
		t.Errorf("%q, %v", name, err)
	}
}
