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
	LimitCreations      Limit = "creations-per-hour"   // of sandboxes
	LimitCPUDay         Limit = "cpu-time-per-day"     // of sandboxes
	LimitCPUMonth       Limit = "cpu-time-per-month"   //
	LimitSandboxDay     Limit = "sandbox-time-per-day" // for which sandboxes exist
	LimitSandboxMonth   Limit = "sandbox-time-per-month"
	LimitSentBytesDay   Limit = "sent-bytes-per-day" // by sandboxes
	LimitSentBytesMonth Limit = "sent-bytes-per-month"
)

// LimitNames are all limits.
func LimitNames() []Limit {
	return []Limit{
		LimitSandboxes, LimitCreations, LimitCPUDay, LimitCPUMonth, LimitSandboxDay, LimitSandboxMonth, LimitSentBytesDay, LimitSentBytesMonth,
	}
}

// isTime reports whether the limit is a time, in milliseconds. isBytes reports whether it
// is a number of bytes.
func (l Limit) isTime() bool  { return strings.Contains(string(l), "-time-") }
func (l Limit) isBytes() bool { return strings.Contains(string(l), "-bytes-") }

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
	default:
		n, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil || n < 0 {
		return "", 0, sandbox.Errorf(sandbox.Invalid, "%s: %q is not %s", l, value, form)
	}
	return l, n, nil
}

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
}

// Use returns how much of a limit is used.
func (a *Account) Use(l Limit) int64 {
	switch l {
	case LimitSandboxes:
		return a.Live
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
	}
	return 0
}

// An Excess is a limit that an account has reached.
type Excess struct {
	Group     string // "" for a limit of the principal
	Limit     Limit
	Max, Used int64
	// Free is when the limit allows more again; zero if that depends on the end of
	// sandboxes.
	Free time.Time
}

// Reached returns the limits that are reached, the one that is free last first. The
// limits on numbers of sandboxes count only for a caller that makes one.
func Reached(accounts []Account, now time.Time, creates bool) []Excess {
	var list []Excess
	for i := range accounts {
		a := &accounts[i]
		for _, l := range LimitNames() {
			most, limited := a.Limits[l]
			used := a.Use(l)
			if !limited || used < most || !creates && (l == LimitSandboxes || l == LimitCreations) {
				continue
			}
			list = append(list, Excess{a.Group, l, most, used, l.free(now)})
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
	whose := "your"
	if x.Group != "" {
		whose = fmt.Sprintf("group %s's", x.Group)
	}
	return fmt.Sprintf("%s limit %s is %s, and %s is used", whose, x.Limit, x.Limit.Format(x.Max), x.Limit.Format(x.Used))
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
