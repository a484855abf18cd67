package usage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Limit names a bound on what an account uses. Hours, days and months are those of
// UTC.
type Limit string

// The limits.
const (
	LimitSandboxes      Limit = "sandboxes"            // that exist at the same time
	LimitMemory         Limit = "memory"               // memory limits of the sandboxes that exist
	LimitCPUs           Limit = "cpus"                 // CPU limits of the sandboxes that exist, in thousandths
	LimitCreations      Limit = "creations-per-hour"   // of sandboxes
	LimitCPUDay         Limit = "cpu-time-per-day"     // of sandboxes
	LimitCPUMonth       Limit = "cpu-time-per-month"   //
	LimitSandboxDay     Limit = "sandbox-time-per-day" // for which sandboxes exist
	LimitSandboxMonth   Limit = "sandbox-time-per-month"
	LimitSentBytesDay   Limit = "sent-bytes-per-day" // by sandboxes
	LimitSentBytesMonth Limit = "sent-bytes-per-month"
	LimitWorkspaceBytes Limit = "workspace-bytes" // of all workspaces
	LimitSnapshotBytes  Limit = "snapshot-bytes"  // of all snapshots
	LimitSavedBytes     Limit = "saved-bytes"     // of sandboxes that hibernate on disk
	LimitRequests       Limit = "requests-per-second"
)

// LimitNames are all limits.
func LimitNames() []Limit {
	return []Limit{
		LimitSandboxes, LimitMemory, LimitCPUs, LimitCreations, LimitCPUDay, LimitCPUMonth, LimitSandboxDay, LimitSandboxMonth,
		LimitSentBytesDay, LimitSentBytesMonth, LimitWorkspaceBytes, LimitSnapshotBytes, LimitSavedBytes, LimitRequests,
	}
}

// isTime reports whether the limit is a time, in milliseconds. isBytes reports whether it
// is a number of bytes.
func (l Limit) isTime() bool { return strings.Contains(string(l), "-time-") }
func (l Limit) isBytes() bool {
	return l == LimitMemory || strings.Contains(string(l)+"-", "-bytes-")
}

// ParseLimit returns the limit of an assignment, such as cpu-time-per-day=2h. Zero
// allows nothing. The function size parses a number of bytes. The error wraps [sandbox.Invalid].
func ParseLimit(text string, size func(string) (int64, error)) (Limit, int64, error) {
	name, value, _ := strings.Cut(text, "=")
	l := Limit(name)
	if !slices.Contains(LimitNames(), l) {
		return "", 0, sandbox.Errorf(sandbox.Invalid, "there is no limit %q; the limits are %s", name, limitList())
	}
	var n int64
	var err error
	form := "a number"
	switch {
	case l.isTime():
		form = "a time such as 90m or 200h"
		var d time.Duration
		d, err = time.ParseDuration(value)
		n = d.Milliseconds()
	case l.isBytes():
		form = "a size such as 10GiB"
		n, err = size(value)
	case l == LimitCPUs:
		form = "a number such as 4 or 1.5"
		var f float64
		f, err = strconv.ParseFloat(value, 64)
		if !(f >= 0 && f <= maxCPUs) {
			n = -1
		} else {
			n = Milli(f)
		}
	default:
		n, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil || n < 0 {
		return "", 0, sandbox.Errorf(sandbox.Invalid, "%s: %q is not %s", l, value, form)
	}
	return l, n, nil
}

// maxCPUs bounds a limit of CPUs, so that its thousandths fit into the number.
const maxCPUs = 1e9

// Milli returns a number of CPUs in thousandths, the unit of [LimitCPUs].
func Milli(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

func limitList() string {
	var names []string
	for _, l := range LimitNames() {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}

// Format returns a value of the limit for people.
func (l Limit) Format(n int64) string {
	switch {
	case l.isTime() && n <= int64(math.MaxInt64/time.Millisecond):
		d := (time.Duration(n) * time.Millisecond).Round(time.Second)
		s := d.String()
		if d%time.Minute == 0 && d > 0 {
			s = strings.TrimSuffix(s, "0s")
		}
		if d%time.Hour == 0 && d > 0 {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	case l.isBytes():
		return sandbox.FormatBytes(n)
	case l == LimitCPUs:
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	}
	return strconv.FormatInt(n, 10)
}

// An Account is a principal or a group with its limits, and what it uses now.
type Account struct {
	Group string // the group's name; "" for the principal
	// Limits are the limits in force.
	Limits map[Limit]int64
	// Live is the number of sandboxes that exist, with those that start. Hour, Day and
	// Month are the amounts of the current spans. Hour.Sandboxes includes the sandboxes
	// that start.
	Live             int64
	Hour, Day, Month Amounts
	// The others are 0 if there is no limit on them: the sums of the memory limits, in
	// bytes, and CPU limits, in thousandths, of the sandboxes that exist or start; the
	// recorded sizes of the workspaces; those of the snapshots, with what is reserved for
	// snapshots in progress; and those of the saved states on the disk.
	LiveMemory, LiveCPUs, WorkspaceBytes, SnapshotBytes, SavedBytes int64
}

// Use returns how much of a limit is used.
func (a *Account) Use(l Limit) int64 {
	switch l {
	case LimitSandboxes:
		return a.Live
	case LimitMemory:
		return a.LiveMemory
	case LimitCPUs:
		return a.LiveCPUs
	case LimitCreations:
		return a.Hour.Sandboxes
	case LimitCPUDay:
		return a.Day.CPUMillis
	case LimitCPUMonth:
		return a.Month.CPUMillis
	case LimitSandboxDay:
		return a.Day.SandboxMillis
	case LimitSandboxMonth:
		return a.Month.SandboxMillis
	case LimitSentBytesDay:
		return a.Day.SentBytes
	case LimitSentBytesMonth:
		return a.Month.SentBytes
	case LimitWorkspaceBytes:
		return a.WorkspaceBytes
	case LimitSnapshotBytes:
		return a.SnapshotBytes
	case LimitSavedBytes:
		return a.SavedBytes
	}
	return 0 // the HTTP server counts requests by itself
}

// An Excess is a limit that an account has reached.
type Excess struct {
	Group     string // "" for a limit of the principal
	Limit     Limit
	Max, Used int64
	// Asked is how much more the action asks for; zero if any more is too much.
	Asked int64
	// Free is when the limit allows more again; zero if that depends on the end of
	// sandboxes.
	Free time.Time
}

// An Action is what a principal is about to do.
type Action int

// The actions.
const (
	Run          Action = iota // starts a program in a sandbox
	Create                     // makes a sandbox
	Grow                       // starts a program or a write that may add to a workspace
	TakeSnapshot               // keeps the state of a sandbox
	Save                       // saves a sandbox on disk
)

// A Demand is an action, and what it asks for.
type Demand struct {
	Action Action
	// Memory, in bytes, and CPUs, in thousandths, are the limits of the sandbox that
	// Create makes.
	Memory, CPUs int64
}

// of returns how much the demand adds to the use of a limit; zero if that is not known.
func (d Demand) of(l Limit) int64 {
	switch l {
	case LimitMemory:
		return d.Memory
	case LimitCPUs:
		return d.CPUs
	}
	return 0
}

// applies reports whether the limit bounds an action.
func (l Limit) applies(to Action) bool {
	switch l {
	case LimitSandboxes, LimitMemory, LimitCPUs, LimitCreations:
		return to == Create
	case LimitWorkspaceBytes:
		return to == Grow
	case LimitSnapshotBytes:
		return to == TakeSnapshot
	case LimitSavedBytes:
		return to == Save
	case LimitRequests:
		return false // see [Rate]
	}
	return to == Create || to == Run
}

// Reached returns the limits that bound an action, and are reached or would be exceeded
// by it. The limit that is free last is the first.
func Reached(accounts []Account, now time.Time, to Demand) []Excess {
	var list []Excess
	for i := range accounts {
		a := &accounts[i]
		for _, l := range LimitNames() {
			most, limited := a.Limits[l]
			if !limited || !l.applies(to.Action) {
				continue
			}
			x := Excess{Group: a.Group, Limit: l, Max: most, Used: a.Use(l), Free: l.free(now)}
			if x.Used < most {
				if x.Asked = to.of(l); x.Asked <= most-x.Used {
					continue
				}
			}
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b Excess) int { return -a.Free.Compare(b.Free) })
	return list
}

// free returns when the current span of a limit ends.
func (l Limit) free(now time.Time) time.Time {
	now = now.UTC()
	switch {
	case strings.HasSuffix(string(l), "-per-hour"):
		return now.Truncate(Hour).Add(Hour)
	case strings.HasSuffix(string(l), "-per-day"):
		return now.Truncate(Day).Add(Day)
	case strings.HasSuffix(string(l), "-per-month"):
		return time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

// String describes the excess to the principal.
func (x Excess) String() string {
	text := fmt.Sprintf("%s limit %s is %s, and %s is used", whose(x.Group), x.Limit, x.Limit.Format(x.Max), x.Limit.Format(x.Used))
	if x.Asked != 0 {
		text += fmt.Sprintf("; the sandbox asks for %s", x.Limit.Format(x.Asked))
	}
	return text
}

// whose returns whose limit it is, for the principal.
func whose(group string) string {
	if group == "" {
		return "your"
	}
	return fmt.Sprintf("group %s's", group)
}

// A Rate is a limit of requests in a second.
type Rate struct {
	Group     string // "" for a limit of the principal
	PerSecond int64
}

// String describes the rate to the principal, as a limit that is reached.
func (r Rate) String() string {
	return fmt.Sprintf("%s limit %s is %d", whose(r.Group), LimitRequests, r.PerSecond)
}

// An AccountLimit is a limit of a principal, of any principal ("*"), or of a group. A
// time is in milliseconds.
type AccountLimit struct {
	Group     string            `json:"group,omitempty"`
	Principal sandbox.Principal `json:"principal,omitempty"`
	Limit     Limit             `json:"limit"`
	Value     int64             `json:"value"`
}

// A Group is a group and its members.
type Group struct {
	Name    string              `json:"group"`
	Members []sandbox.Principal `json:"members"`
}
