package httpserver

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

type fakeUsage struct {
	asked usage.Query
	rows  int
}

func (f *fakeUsage) Usage(_ context.Context, q usage.Query) ([]usage.Row, error) {
	f.asked = q
	rows := make([]usage.Row, min(f.rows, q.Limit))
	for i := range rows {
		rows[i] = usage.Row{Start: time.Unix(0, 0).UTC(), Principal: "good", Amounts: usage.Amounts{Runs: 1}}
	}
	return rows, nil
}

func TestUsage(t *testing.T) {
	fake := &fakeUsage{rows: 1}
	s := newServer(t, func(o *Options) { o.Usage = fake })
	get := func(query string, headers ...string) (int, string) {
		t.Helper()
		res := request(s, "GET", "/api/usage"+query, "", headers...)
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if status, _ := get(""); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	for _, token := range []string{"good", "filesonly"} {
		status, body := get("?by=day,workspace&since=2026-11-01&until=2026-12-01T00:00:00Z", "Authorization", "Bearer "+token)
		if status != 200 || !strings.Contains(body, `{"principal":"good","usage":[{"start":"1970-01-01T00:00:00Z","sandboxes":0,`) {
			t.Errorf("%s: %d %s", token, status, body)
		}
		want := usage.Query{
			From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
			Principals: []sandbox.Principal{"good"}, By: []usage.Column{usage.ByDay, usage.ByWorkspace}, Limit: maxUsageRows + 1,
		}
		if diff := cmp.Diff(want, fake.asked); diff != "" {
			t.Errorf("%s: -want +got\n%s", token, diff)
		}
	}
	if status, body := get("?format=csv", "Authorization", good); status != 200 || !strings.HasPrefix(body, "start,principal,") {
		t.Errorf("CSV: %d %s", status, body)
	}
	for _, wrong := range []string{"?by=year", "?since=now", "?until=x", "?format=xml", "?by=day&by=day"} {
		if status, body := get(wrong, "Authorization", good); status != 400 || !strings.Contains(body, `"kind":"invalid"`) {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
	// Only an operator may ask for another principal.
	if status, body := get("?principal=other", "Authorization", "Bearer filesonly"); status != 403 || strings.Contains(body, "1970") {
		t.Errorf("another principal: %d %s", status, body)
	}
	if status, _ := get("?principal=other", "Authorization", good); status != 200 || !slices.Equal(fake.asked.Principals, []sandbox.Principal{"other"}) {
		t.Errorf("another principal, as the operator: %d, asked for %v", status, fake.asked.Principals)
	}
	fake.rows = 0
	if _, body := get("", "Authorization", good); !strings.Contains(body, `"usage":[]`) {
		t.Errorf("no rows: %s", body)
	}
	fake.rows = maxUsageRows + 1
	if status, body := get("", "Authorization", good); status != 200 || strings.Count(body, "1970") != maxUsageRows || !strings.Contains(body, `"truncated":true`) {
		t.Errorf("too many rows: %d, %d bytes", status, len(body))
	}
	if status, _ := get("?format=csv", "Authorization", good); status != 400 {
		t.Errorf("too many rows as CSV: %d", status)
	}
	if res := request(newServer(t, nil), "GET", "/api/usage", "", "Authorization", good); res.StatusCode != 404 {
		t.Errorf("without usage: %d", res.StatusCode)
	}
}
