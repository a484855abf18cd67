package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Accounts know what principals used, and their limits.
type Accounts interface {
	Usage(ctx context.Context, q usage.Query) ([]usage.Row, error)
	// Accounts returns a principal's limits, and those of its groups, with their use.
	Accounts(ctx context.Context, p sandbox.Principal) ([]usage.Account, error)
	// Members returns the principals of each group.
	Members(ctx context.Context) (map[string][]sandbox.Principal, error)
}

// maxAccounts bounds the rows of a table of principals or groups.
const maxAccounts = 500

// usageDays are the spans that people can choose.
var usageDays = []int{7, 30, 90, 365}

// A usageView is the content of the page of usage.
type usageView struct {
	frame
	All      bool // it shows all principals, not only the person's own
	By       string
	Days     int
	Spans    []choice
	Columns  []choice // what the rows can be
	Rows     []usageRow
	Sum      usage.Amounts
	Bars     []bar
	Top      string // the longest CPU time of a day
	Omitted  int
	Limits   []limitRow
	Download string
}

// A choice is a link to another view of the same page.
type choice struct {
	Name, Link string
	Here       bool
}

// A usageRow is a row of the table.
type usageRow struct {
	Name    string
	Members int // of a group
	usage.Amounts
}

// A limitRow is a limit of an account.
type limitRow struct {
	Name, Of, Used, Value string
	Now, Most             int64
}

// A bar is a column of a chart, in the units of its picture.
type bar struct {
	X, Y, Height string
	Text         string
}

// The measures of the chart: the distance of bars, and the height of the longest.
const (
	barWidth  = 10
	barHeight = 100
)

// isOperator reports whether a person may see what all principals do.
func isOperator(sess *session) bool { return sess.id.Can(auth.ScopeAdmin) }

func (s *Server) usage(w http.ResponseWriter, r *http.Request, sess *session) error {
	v, err := s.usageView(r, sess)
	if err == nil {
		s.show(w, r, http.StatusOK, "usage", v)
	}
	return err
}

func (s *Server) usageView(r *http.Request, sess *session) (usageView, error) {
	ctx, form := r.Context(), r.URL.Query()
	v := usageView{frame: s.frame(sess, "Usage", "usage"), All: isOperator(sess), By: cmp.Or(form.Get("by"), "day"), Days: 30}
	if text := form.Get("days"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || !slices.Contains(usageDays, n) {
			return v, sandbox.Errorf(sandbox.Invalid, "days: %.20q is not 7, 30, 90 or 365", text)
		}
		v.Days = n
	}
	names := []string{"day"}
	if v.All {
		names = append(names, "principal", "group")
	}
	if !slices.Contains(names, v.By) {
		return v, sandbox.Errorf(sandbox.Invalid, "by: %.20q is not %s", v.By, strings.Join(names, ", "))
	}
	link := func(by string, days int) string {
		return Path + "usage?" + url.Values{"by": {by}, "days": {strconv.Itoa(days)}}.Encode()
	}
	for _, n := range usageDays {
		v.Spans = append(v.Spans, choice{strconv.Itoa(n) + " days", link(v.By, n), n == v.Days})
	}
	for _, name := range names {
		v.Columns = append(v.Columns, choice{"By " + name, link(name, v.Days), name == v.By})
	}
	today := s.opts.Now().UTC().Truncate(usage.Day)
	q := usage.Query{From: today.AddDate(0, 0, 1-v.Days), By: []usage.Column{usage.ByDay}}
	if !v.All {
		q.Principals = []sandbox.Principal{sess.id.Principal}
	}
	days, err := s.opts.Accounts.Usage(ctx, q)
	if err != nil {
		return v, err
	}
	for _, row := range days {
		v.Sum = v.Sum.Plus(row.Amounts)
	}
	v.Bars, v.Top = bars(days, q.From, v.Days)
	switch v.By {
	case "day":
		for _, row := range slices.Backward(days) {
			v.Rows = append(v.Rows, usageRow{Name: row.Start.UTC().Format("Mon 2 Jan 2006"), Amounts: row.Amounts})
		}
	default:
		q.By = []usage.Column{usage.ByPrincipal}
		list, err := s.opts.Accounts.Usage(ctx, q)
		if err != nil {
			return v, err
		}
		if v.Rows, err = s.accountRows(ctx, v.By, list); err != nil {
			return v, err
		}
		if n := len(v.Rows); n > maxAccounts {
			v.Rows, v.Omitted = v.Rows[:maxAccounts], n-maxAccounts
		}
	}
	v.Limits, err = s.limitRows(ctx, sess.id.Principal)
	return v, err
}

// accountRows returns the rows of principals or of groups, the most CPU time first. A
// principal counts in each of its groups.
func (s *Server) accountRows(ctx context.Context, by string, list []usage.Row) ([]usageRow, error) {
	var rows []usageRow
	if by == "principal" {
		for _, r := range list {
			rows = append(rows, usageRow{Name: principalName(r.Principal), Amounts: r.Amounts})
		}
	} else {
		members, err := s.opts.Accounts.Members(ctx)
		if err != nil {
			return nil, err
		}
		of := map[sandbox.Principal][]string{}
		sums := map[string]usage.Amounts{}
		for group, principals := range members {
			sums[group] = usage.Amounts{}
			for _, p := range principals {
				of[p] = append(of[p], group)
			}
		}
		for _, r := range list {
			for _, group := range of[r.Principal] {
				sums[group] = sums[group].Plus(r.Amounts)
			}
			if len(of[r.Principal]) == 0 {
				sums[""] = sums[""].Plus(r.Amounts)
			}
		}
		for _, group := range slices.Sorted(maps.Keys(sums)) {
			rows = append(rows, usageRow{cmp.Or(group, "in no group"), len(members[group]), sums[group]})
		}
	}
	slices.SortStableFunc(rows, func(a, b usageRow) int {
		return cmp.Or(cmp.Compare(b.CPUMillis, a.CPUMillis), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
}

// limitRows returns the limits that a principal has.
func (s *Server) limitRows(ctx context.Context, p sandbox.Principal) ([]limitRow, error) {
	accounts, err := s.opts.Accounts.Accounts(ctx, p)
	if err != nil {
		return nil, err
	}
	var rows []limitRow
	for _, a := range accounts {
		of := "yours"
		if a.Group != "" {
			of = "of the group " + a.Group
		}
		for _, l := range usage.LimitNames() {
			most, ok := a.Limits[l]
			if !ok || l == usage.LimitRequests { // a rate has no use to show
				continue
			}
			now := a.Use(l)
			rows = append(rows, limitRow{strings.Replace(words(strings.ReplaceAll(string(l), "-", " ")), "Cpu", "CPU", 1), of, l.Format(now), l.Format(most), now, most})
		}
	}
	return rows, nil
}

// bars returns the chart of the CPU time of each day, and the longest time.
func bars(rows []usage.Row, from time.Time, days int) (list []bar, top string) {
	of := map[int64]int64{}
	var most int64
	for _, r := range rows {
		day := int64(r.Start.Sub(from) / usage.Day)
		of[day] += r.CPUMillis
		most = max(most, of[day])
	}
	if most == 0 {
		return nil, ""
	}
	for day := range int64(days) {
		if of[day] == 0 {
			continue
		}
		height := max(1, float64(of[day])/float64(most)*barHeight) // visible
		list = append(list, bar{
			X: strconv.FormatInt(day*barWidth, 10), Y: number(barHeight - height), Height: number(height),
			Text: fmt.Sprintf("%s: %s", from.AddDate(0, 0, int(day)).Format("2 Jan"), took(time.Duration(of[day])*time.Millisecond)),
		})
	}
	return list, took(time.Duration(most) * time.Millisecond)
}

// number writes a number of a picture.
func number(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

// Traffic returns the bytes that were sent and received.
func (v usageView) Traffic() int64 { return v.Sum.SentBytes + v.Sum.ReceivedBytes }

// Width returns the width of the chart.
func (v usageView) Width() int { return v.Days * barWidth }

// gibHours writes an amount of KiB multiplied by seconds.
func gibHours(n int64) string {
	return strconv.FormatFloat(float64(n)/(1<<20)/3600, 'f', 2, 64) + " GiB h"
}
