package verdict

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// unresolved matches the messages of common programs about a host that they
// cannot resolve: requests, curl, git, cargo, apt, Go, Node, wget. It is
// compiled at its first use. Compiling takes a quarter of a millisecond, and
// every helper of a sandbox is a start of this program.
var unresolved = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?:host='|Could not resolve (?:host: |')|dial tcp: lookup |getaddrinfo (?:ENOTFOUND|EAI_AGAIN) |unable to resolve host address ['‘“])([a-z0-9][a-z0-9.-]{1,251}[a-z0-9])`)
})

// pipFailed is pip's message about a package when it reached no index. The
// message does not name the host.
const pipFailed = "No matching distribution found for"

// noResolver and noRoute are the messages of the C library for a name that it
// cannot resolve, and for an address, where there is no network.
const (
	noResolver = "Temporary failure in name resolution"
	noRoute    = "Network is unreachable"
)

// unresolvedNames returns the allowed names that have no address, at most three.
func unresolvedNames(used *sandbox.RunNetwork) string {
	if used == nil {
		return ""
	}
	var names []string
	for _, d := range used.Blocked {
		if d.Blocked == sandbox.BlockedUnresolved && sandbox.ValidHost(d.Host) && !slices.Contains(names, d.Host) && len(names) < 3 {
			names = append(names, d.Host)
		}
	}
	return strings.Join(names, ", ")
}

// isAddress reports whether a destination is an IP address, not a name.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Advise adds to a verdict which hosts the program could not reach, and the
// network that allows them. most is the most that the operator allows. output is the
// end of the program's output.
func Advise(v *sandbox.Verdict, network, most sandbox.Network, used *sandbox.RunNetwork, output string) {
	if v.Code != sandbox.Failed || v.NextStep != "" {
		return
	}
	var hosts []string
	addRule := func(rule string) {
		if !slices.Contains(hosts, rule) && len(hosts) < 8 {
			hosts = append(hosts, rule)
		}
	}
	add := func(h string) {
		if sandbox.ValidHost(h) {
			addRule(h)
		}
	}
	if used != nil {
		for _, d := range used.Blocked {
			switch {
			case d.Blocked == sandbox.BlockedPolicy && isAddress(d.Host):
				addRule(d.Host)
			case d.Blocked == sandbox.BlockedPolicy:
				add(d.Host)
			case d.Blocked == sandbox.BlockedHost && d.Host == sandbox.ThisMachine:
				addRule(d.Host + ":" + strconv.Itoa(int(d.Port)))
			case d.Blocked == sandbox.BlockedOpaque && sandbox.ValidHost(d.Host) && !sandbox.IsWebPort(d.Port):
				// The rule for this host allowed TLS and HTTP only.
				addRule(d.Host + ":" + strconv.Itoa(int(d.Port)))
			}
		}
	}
	if network == sandbox.NetworkNone {
		for _, m := range unresolved().FindAllStringSubmatch(output, -1) {
			add(m[1])
		}
		if strings.Contains(output, pipFailed) {
			add("pypi.org")
		}
	}
	if len(hosts) == 0 {
		if names := unresolvedNames(used); names != "" {
			v.NextStep = "the network allows " + names + ", and the machine that runs Glovebox could not resolve it: check the name, and that machine's network"
			return
		}
		if network == sandbox.NetworkNone && (strings.Contains(output, noResolver) || strings.Contains(output, noRoute)) {
			v.NextStep = `the sandbox has no network: if it needs one, make a sandbox whose network names the hosts, like "example.com"`
			if most == "" || most == sandbox.NetworkNone {
				v.NextStep += needsOperator
			}
		}
		return
	}
	// The index of PyPI is useless without the host of its files.
	if slices.Contains(hosts, "pypi.org") {
		add("files.pythonhosted.org")
	}
	wanted := strings.Join(hosts, ",")
	if network != sandbox.NetworkNone {
		wanted = string(network) + "," + wanted
	}
	v.NextStep = "the sandbox's network does not allow " + strings.Join(hosts, ", ") +
		": if it needs that, make a sandbox with network \"" + wanted + "\""
	if n, err := sandbox.ParseNetwork(wanted); err == nil && n.Within(most) != nil {
		v.NextStep += needsOperator
	}
}

// needsOperator ends a next step that only the operator can make possible.
const needsOperator = "; the operator of the server must allow it first"
