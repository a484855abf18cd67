package dashboard

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPreview shows a port in a frame, and allows the page no other frame.
func TestPreview(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	res, body := w.get(Path + "sandboxes/" + box + "/preview?port=8000")
	origin := "https://8000-" + sandbox.HostID(box) + ".ports.example.com:8443/"
	if !strings.Contains(body, `<iframe class="preview" src="`+origin+`?glovebox_link=LINK"`) || !strings.Contains(body, ` sandbox="allow-scripts allow-forms allow-same-origin"`) {
		t.Errorf("the page is\n%s", body)
	}
	if csp := res.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "; frame-src "+origin+";") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %s", csp)
	}
	if res, _ := w.get(Path); !strings.Contains(res.Header.Get("Content-Security-Policy"), "; frame-src 'none';") {
		t.Errorf("the policy of another page is %s", res.Header.Get("Content-Security-Policy"))
	}
	for port, want := range map[string]int{"": 400, "x": 400, "0": 400, "65536": 400} {
		if res, _ := w.get(Path + "sandboxes/" + box + "/preview?port=" + port); res.StatusCode != want {
			t.Errorf("port %q: %d", port, res.StatusCode)
		}
	}
	w = newWorld(t, func(o *Options) { o.Ports = nil })
	w.signIn("alice")
	if _, body := w.get(Path + "sandboxes/" + box); strings.Contains(body, "/preview") {
		t.Error("a server without ports offers a preview")
	}
}

// TestHibernate changes the state of a sandbox.
func TestHibernate(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("bob")
	if res, _ := w.post(Path+"sandboxes/"+box+"/hibernate", url.Values{}); res.StatusCode != 404 || w.engine.box.State != sandbox.Running {
		t.Errorf("another principal: %d", res.StatusCode)
	}
	w.signIn("alice")
	for _, c := range []struct {
		do   string
		want sandbox.State
		next string
	}{{"hibernate", sandbox.Hibernated, "wake"}, {"wake", sandbox.Running, "hibernate"}} {
		if res, body := w.post(Path+"sandboxes/"+box+"/"+c.do, url.Values{}); res.StatusCode != 303 || w.engine.box.State != c.want {
			t.Errorf("%s: %d %s", c.do, res.StatusCode, body)
		}
		if _, body := w.get(Path + "sandboxes/" + box); !strings.Contains(body, "/"+c.next+`"`) {
			t.Errorf("after %s:\n%s", c.do, body)
		}
	}
}

// TestSettings shows the operator all tokens and the findings of the doctor, and others
// their own tokens.
func TestSettings(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Doctor = func(context.Context) []Finding { return []Finding{{"cgroups", "warning", "d" + script, "f" + script}} }
	})
	w.signIn("alice")
	if _, body := w.get(Path + "settings"); !strings.Contains(body, "tok_of_al") || strings.Contains(body, "somebody-else") || strings.Contains(body, "settings/doctor") {
		t.Errorf("alice sees\n%s", body)
	}
	if res, _ := w.post(Path+"settings/doctor", url.Values{}); res.StatusCode != 403 {
		t.Errorf("alice examines the machine: %d", res.StatusCode)
	}
	w.signIn("operator")
	if res, _ := w.post(Path+"settings/doctor", url.Values{}); res.StatusCode != 303 {
		t.Errorf("examine: %d", res.StatusCode)
	}
	_, body := w.get(Path + "settings")
	for _, want := range []string{"somebody-else", "Revoked", "1 to repair", "Remedy", "f&lt;script"} {
		if !strings.Contains(body, want) {
			t.Errorf("the operator's page lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, script) {
		t.Errorf("the page has markup:\n%s", body)
	}
}

// TestTimeline puts runs that overlap into lanes, and none outside of the picture.
func TestTimeline(t *testing.T) {
	start := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	run := func(from, to int) runRow {
		r := sandbox.Run{ID: theRun, Status: sandbox.RunFinished, Started: start.Add(time.Duration(from) * time.Second), Ended: start.Add(time.Duration(to) * time.Second)}
		if to == 0 {
			r.Status, r.Ended = sandbox.RunRunning, time.Time{}
		}
		return runRow{ListedRun: sandbox.ListedRun{Run: r}}
	}
	got := newTimeline([]runRow{run(90, 90), run(60, 80), run(55, 65), run(10, 50), run(0, 0)}, start.Add(100*time.Second))
	if len(got.Bars) != 5 || got.Height != 3*laneHeight {
		t.Fatalf("%+v", got)
	}
	for i, y := range []int{0, 1, 1, 2, 1} {
		if got.Bars[i].Y != y*laneHeight {
			t.Errorf("bar %d is at %d", i, got.Bars[i].Y)
		}
	}
	if got := newTimeline(nil, start); len(got.Bars) != 0 {
		t.Errorf("without runs: %+v", got)
	}
	if got := newTimeline([]runRow{run(-1, -5), run(1000, 1001)}, start); len(got.Bars) != 2 { // clocks may jump
		t.Errorf("odd times: %+v", got)
	}
}
