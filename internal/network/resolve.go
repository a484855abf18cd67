package network

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// hostNames are the files with which this machine resolves names. A gateway's
// process cannot read files. It receives their text at its start, and again from
// KeepFresh after a change.
type hostNames struct {
	Resolv string `json:"resolv"` // /etc/resolv.conf
	Hosts  string `json:"hosts"`  // /etc/hosts
}

// The paths of the files, and how many bytes of each are read.
const (
	resolvFile   = "/etc/resolv.conf"
	hostsFile    = "/etc/hosts"
	maxNamesFile = 1 << 20
)

// readHostNames reads the files. A missing file counts as empty.
func readHostNames() hostNames {
	return hostNames{Resolv: readBounded(resolvFile), Hosts: readBounded(hostsFile)}
}

func readBounded(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNamesFile))
	if err != nil {
		return ""
	}
	return string(data)
}

// A namesConfig is the parsed form of hostNames.
type namesConfig struct {
	servers []string // addresses with ports, in order
	timeout time.Duration
	tcp     bool
	hosts   map[string][]netip.Addr // by lower-case name
}

// The defaults of resolv.conf(5).
const defaultDNSTimeout = 5 * time.Second

var defaultDNSServers = []string{"127.0.0.1:53", "[::1]:53"}

// parse never fails. It ignores lines that it cannot parse, as a C library does.
func (n hostNames) parse() *namesConfig {
	c := &namesConfig{timeout: defaultDNSTimeout, hosts: map[string][]netip.Addr{}}
	for f := range configLines(n.Resolv) {
		switch {
		case f[0] == "nameserver" && len(f) > 1 && len(c.servers) < 3:
			if a, err := netip.ParseAddr(f[1]); err == nil {
				c.servers = append(c.servers, netip.AddrPortFrom(a, portDNS).String())
			}
		case f[0] == "options":
			for _, o := range f[1:] {
				if s, found := strings.CutPrefix(o, "timeout:"); found {
					if n, err := strconv.Atoi(s); err == nil {
						c.timeout = time.Duration(min(max(n, 1), 30)) * time.Second
					}
				}
				c.tcp = c.tcp || o == "use-vc" || o == "usevc" || o == "tcp"
			}
		}
	}
	if len(c.servers) == 0 {
		c.servers = defaultDNSServers
	}
	for f := range configLines(n.Hosts) {
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		for _, name := range f[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			c.hosts[name] = append(c.hosts[name], a)
		}
	}
	return c
}

// configLines yields the words of each non-empty line of a text, without
// comments.
func configLines(text string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Scan() {
			line, _, _ := strings.Cut(lines.Text(), "#")
			line, _, _ = strings.Cut(line, ";")
			if f := strings.Fields(line); len(f) > 0 && !yield(f) {
				return
			}
		}
	}
}

// A hostResolver resolves names as this machine does.
type hostResolver struct {
	only   string // the only DNS server to ask, with its port, or ""
	config atomic.Pointer[namesConfig]
}

// newHostResolver returns a resolver that asks the DNS server only, or the
// servers of this machine if only is "".
func newHostResolver(only string) *hostResolver { return &hostResolver{only: only} }

// use makes r resolve names with n from now on.
func (r *hostResolver) use(n hostNames) { r.config.Store(n.parse()) }

// lookup returns the addresses of a name that ends with a dot. It asks one server
// after the other until one answers that the name exists or does not exist.
func (r *hostResolver) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c := r.config.Load()
	if c == nil {
		r.use(readHostNames())
		c = r.config.Load()
	}
	if addrs := c.hosts[strings.ToLower(strings.TrimSuffix(host, "."))]; len(addrs) > 0 {
		return addrs, nil
	}
	servers := c.servers
	if r.only != "" {
		servers = []string{r.only}
	}
	var last error
	for i, server := range servers {
		addrs, err := c.ask(ctx, network, host, server, i == len(servers)-1)
		var e *net.DNSError
		if err == nil || errors.As(err, &e) && e.IsNotFound || ctx.Err() != nil {
			return addrs, err
		}
		last = err
	}
	return nil, last
}

// ask asks one server. The last server gets all the time that is left.
func (c *namesConfig) ask(ctx context.Context, network, host, server string, last bool) ([]netip.Addr, error) {
	if !last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout/2)
		defer cancel()
	}
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if c.tcp {
			network = "tcp"
		}
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	return r.LookupNetIP(ctx, network, host)
}
