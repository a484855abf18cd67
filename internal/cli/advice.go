package cli

import (
	"regexp"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// wantedNetwork finds the network that a verdict recommends.
var wantedNetwork = regexp.MustCompile(`^(the sandbox's network does not allow .*): if it needs that, make a sandbox with network "([^"]+)"$`)

// noNetwork begins the next step of a verdict where there is no network.
const noNetwork = "the sandbox has no network"

// advice returns the next step of a verdict for this command line: it names flags
// where the verdict's own words name arguments of tools.
func advice(v sandbox.Verdict) string {
	switch v.Code {
	case sandbox.OutOfMemory:
		return "allow more with --memory, like --memory 1GiB, or process the data in smaller pieces"
	case sandbox.Timeout:
		return "allow more time with --timeout, like --timeout 5m, or split the work"
	case sandbox.TooManyProcesses:
		return "allow more with --processes, or start fewer processes at a time"
	}
	if m := wantedNetwork.FindStringSubmatch(v.NextStep); m != nil {
		return m[1] + "; to allow it, use --network " + m[2]
	}
	if strings.HasPrefix(v.NextStep, noNetwork) {
		return noNetwork + "; to allow a host, use --network, like --network example.com"
	}
	return v.NextStep
}
