package answer

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// mostShown bounds the hosts of each kind in a result's text. The structured
// content has all hosts.
const mostShown = 8

// networkText returns, for models, the destinations that a run's sandbox reached
// and those that were blocked. It is empty if there are none.
func networkText(n sandbox.RunNetwork) string {
	var b strings.Builder
	list := func(label string, destinations []sandbox.Destination) {
		var parts []string
		for i, d := range destinations {
			if i == mostShown {
				parts = append(parts, fmt.Sprintf("and %d more", len(destinations)-i))
				break
			}
			text := d.Host
			if d.Port != 0 {
				text = fmt.Sprintf("%s port %d", d.Host, d.Port)
			}
			if d.Blocked != "" {
				text += fmt.Sprintf(" (%s)", d.Blocked)
			} else {
				text += fmt.Sprintf(" (sent %s, received %s)", sandbox.FormatBytes(d.Sent), sandbox.FormatBytes(d.Received))
			}
			parts = append(parts, text)
		}
		if len(parts) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", label, strings.Join(parts, ", "))
		}
	}
	list("network reached", n.Reached)
	list("network blocked", n.Blocked)
	return b.String()
}
