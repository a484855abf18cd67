package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

func TestClientBehindProxies(t *testing.T) {
	trusted := proxyList{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		peer      string
		header    []string // each is one header
		want      string
		forwarded bool
	}{
		"no proxy":                {"203.0.113.9:1234", nil, "203.0.113.9:1234", false},
		"a stranger's header":     {"203.0.113.9:1234", []string{"10.0.0.1"}, "203.0.113.9:1234", false},
		"a proxy's own request":   {"10.0.0.1:1234", nil, "10.0.0.1:1234", false},
		"one proxy":               {"10.0.0.1:1234", []string{"203.0.113.9"}, "203.0.113.9", true},
		"spaces":                  {"10.0.0.1:1234", []string{" 203.0.113.9\t"}, "203.0.113.9", true},
		"two proxies":             {"10.0.0.1:1234", []string{"203.0.113.9, 10.2.2.2"}, "203.0.113.9", true},
		"two headers":             {"10.0.0.1:1234", []string{"198.51.100.7", "203.0.113.9,10.2.2.2"}, "203.0.113.9", true},
		"the client claims":       {"10.0.0.1:1234", []string{"127.0.0.1, 198.51.100.7, 203.0.113.9"}, "203.0.113.9", true},
		"the client writes more":  {"10.0.0.1:1234", []string{"<script>, , 203.0.113.9"}, "203.0.113.9", true},
		"with a port":             {"10.0.0.1:1234", []string{"203.0.113.9:4711"}, "203.0.113.9", true},
		"IPv6":                    {"[fd00::1]:1234", []string{"2001:db8::9"}, "2001:db8::9", true},
		"IPv6 in brackets":        {"[fd00::1]:1234", []string{"[2001:db8::9]"}, "2001:db8::9", true},
		"IPv6 with a port":        {"[fd00::1]:1234", []string{"[2001:db8::9]:4711"}, "2001:db8::9", true},
		"IPv4 in IPv6":            {"[::ffff:10.0.0.1]:1234", []string{"203.0.113.9, ::ffff:10.2.2.2"}, "203.0.113.9", true},
		"a zone":                  {"10.0.0.1:1234", []string{"fe80::1%x"}, "fe80::1", true},
		"a proxy here":            {"127.0.0.1:1234", []string{"203.0.113.9"}, "203.0.113.9", true},
		"this machine by a proxy": {"127.0.0.1:1234", []string{"127.0.0.1"}, "127.0.0.1:1234", true},
		"only proxies":            {"10.0.0.1:1234", []string{"10.3.3.3, 10.2.2.2"}, "10.0.0.1:1234", true},
		"empty":                   {"10.0.0.1:1234", []string{""}, "10.0.0.1:1234", true},
		"a comma at the end":      {"10.0.0.1:1234", []string{"203.0.113.9,"}, "10.0.0.1:1234", true},
		"a name":                  {"10.0.0.1:1234", []string{"203.0.113.9, client.example"}, "10.0.0.1:1234", true},
		"unknown":                 {"127.0.0.1:1234", []string{"unknown"}, "127.0.0.1:1234", true},
		"a socket":                {"@", []string{"203.0.113.9"}, "@", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = tt.peer
			r.Header.Set("Forwarded", "for=192.0.2.77")
			r.Header.Set("X-Real-Ip", "192.0.2.78")
			for _, h := range tt.header {
				r.Header.Add("X-Forwarded-For", h)
			}
			got := trusted.fromClient(r)
			if got.RemoteAddr != tt.want || auth.Remote(got.Context()) != tt.want || auth.Forwarded(got.Context()) != tt.forwarded {
				t.Errorf("from %q, %q, forwarded %t; want %q, %t", got.RemoteAddr, auth.Remote(got.Context()), auth.Forwarded(got.Context()), tt.want, tt.forwarded)
			}
			if none := proxyList(nil).fromClient(r); none.RemoteAddr != tt.peer || auth.Forwarded(none.Context()) {
				t.Errorf("without the setting: from %q", none.RemoteAddr)
			}
		})
	}
}

// TestLongForwardedFor has as many addresses of proxies as a header can.
func TestLongForwardedFor(t *testing.T) {
	trusted := proxyList{netip.MustParsePrefix("10.0.0.0/8")}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-Forwarded-For", "203.0.113.9"+strings.Repeat(",10.0.0.2", maxHeaderBytes/9))
	if got := trusted.fromClient(r); got.RemoteAddr != "203.0.113.9" {
		t.Errorf("from %q", got.RemoteAddr)
	}
}

// TestStrangersBehindProxy: the requests of a proxy's clients count for each client while
// their principals are not known, and handlers see the client's address.
func TestStrangersBehindProxy(t *testing.T) {
	shares := NewShares(0)
	seen, proceed := make(chan string), make(chan bool)
	s := newServer(t, func(o *Options) {
		o.Shares, o.TrustedProxies = shares, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.Public = map[string]http.Handler{"GET /strangers": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen <- r.RemoteAddr
			<-proceed
		})}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	answers := make(chan error, 3)
	for _, client := range []string{"203.0.113.9", "2001:db8::9", "127.0.0.1"} {
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ln.Addr().String()+"/strangers", nil)
			if err != nil {
				answers <- err
				return
			}
			r.Header.Set("X-Forwarded-For", client)
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			answers <- err
		}()
		select {
		case from := <-seen:
			if from != client && !(client == "127.0.0.1" && strings.HasPrefix(from, client+":")) {
				t.Errorf("the handler sees %q, want %q", from, client)
			}
		case err := <-answers:
			t.Fatalf("the answer to %s came before its handler: %v", client, err)
		}
	}
	if st := shares.unknown.Stats(); st.Principals != 3 || st.MostHeld != 1 {
		t.Errorf("%d clients hold at most %d, want 3 with 1 each", st.Principals, st.MostHeld)
	}
	for range 3 {
		proceed <- true
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}
