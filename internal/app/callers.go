package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/e2bapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkCallers names the principal that has the most live sandboxes, and its
// clients: perhaps one of them never ends its sandboxes.
func (s *System) checkCallers(ctx context.Context) []Check {
	recs, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return []Check{failed("live sandboxes", err)}
	}
	live := make([]sandbox.Sandbox, 0, len(recs))
	of := make([]sandbox.Principal, 0, len(recs))
	for _, r := range recs {
		live, of = append(live, r.Sandbox), append(of, r.Principal)
	}
	if c, ok := callers(live, of, s.opts.Config.Sandbox.Count, time.Now()); ok {
		return []Check{c}
	}
	return nil
}

// callers is the check of live sandboxes, oldest first, and their principals. most
// is the greatest number of sandboxes that the server has at one time. ok is false
// if there are none.
func callers(live []sandbox.Sandbox, of []sandbox.Principal, most int, now time.Time) (c Check, ok bool) {
	if len(live) == 0 {
		return Check{}, false
	}
	count := map[sandbox.Principal]int{}
	for _, p := range of {
		count[p]++
	}
	top := of[0]
	for _, p := range of {
		if count[p] > count[top] {
			top = p
		}
	}
	clients, name, oldest := map[string]int{}, "", time.Duration(0)
	for i, sb := range live {
		if of[i] != top {
			continue
		}
		oldest = max(oldest, now.Sub(sb.Created))
		if by := e2bapi.ClientOf(sb); by != "" {
			if clients[by]++; clients[by] > clients[name] {
				name = by
			}
		}
	}
	detail := []string{fmt.Sprintf("%d of at most %d", len(live), most), fmt.Sprintf("%s has the most: %d, the oldest for %s", top, count[top], oldest.Truncate(time.Second))}
	if name != "" {
		detail = append(detail, fmt.Sprintf("%d by the client %q", clients[name], name))
	}
	c = Check{Name: "live sandboxes", Status: CheckOK, Detail: strings.Join(detail, "; ")}
	if 2*count[top] >= most {
		c.Status = CheckNote
		c.Fix = "glovebox ps shows them and their ends; if that client forgets them, lower sandbox.default.lifetime or its timeouts"
	}
	return c, true
}
