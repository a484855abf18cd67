package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSnapshots takes, rolls back, deletes and forks, as the owner and as another
// principal.
func TestSnapshots(t *testing.T) {
	w := newWorld(t, nil)
	w.engine.box.Workspace = "work"
	at := Path + "sandboxes/" + box
	copied := sandbox.Sandbox{ID: "sbx_cccccccccccccccccccccccccc"}
	w.engine.forks = []sandbox.Fork{{Sandbox: copied}}
	actions := []struct {
		path string
		form url.Values
		want string // action
		next string
	}{
		{"/snapshots", url.Values{"name": {" good "}}, "take good", at + "#snapshots"},
		{"/snapshots/" + theSnapshot + "/rollback", nil, "rollback " + theSnapshot + " false", at},
		{"/snapshots/" + theSnapshot + "/rollback", url.Values{"stop_runs": {"1"}}, "rollback " + theSnapshot + " true", at},
		{"/snapshots/" + theSnapshot + "/delete", nil, "delete " + theSnapshot, at + "#snapshots"},
		{"/fork", url.Values{"count": {"1"}}, "fork 1 false", Path + "sandboxes/" + copied.ID},
		{"/fork", url.Values{"count": {"100"}, "copy_workspace": {"1"}}, "fork 100 true", Path + "sandboxes/" + copied.ID},
	}
	w.signIn("bob")
	for _, a := range actions {
		if res, _ := w.post(at+a.path, a.form); res.StatusCode != 404 {
			t.Errorf("%s by another principal: %d", a.path, res.StatusCode)
		}
	}
	w.signIn("alice")
	for _, a := range actions {
		if res, _ := w.post(at+a.path, a.form, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
			t.Errorf("%s by a page elsewhere: %d", a.path, res.StatusCode)
		}
	}
	var want []string
	for _, a := range actions {
		want = append(want, a.want)
		if res, body := w.post(at+a.path, a.form); res.StatusCode != 303 || res.Header.Get("Location") != a.next {
			t.Errorf("%s: %d to %q\n%s", a.path, res.StatusCode, res.Header.Get("Location"), body)
		}
	}
	if diff := cmp.Diff(want, w.engine.actions); diff != "" {
		t.Errorf("the engine did (-want +got):\n%s", diff)
	}
	_, body := w.get(at)
	for _, part := range []string{"s&lt;script&gt;", "snap_bbbbbbbb", "3 MiB", "Roll back …", "Delete …", `name="copy_workspace"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the page lacks %q:\n%s", part, body)
		}
	}
}

// TestSnapshotsRefused shows errors on the page of the sandbox.
func TestSnapshotsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	at := Path + "sandboxes/" + box
	for form, path := range map[string]string{
		"":          "/fork",
		"count=0":   "/fork",
		"count=101": "/fork",
		"count=x":   "/fork",
	} {
		values, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		if res, body := w.post(at+path, values); res.StatusCode != 400 || !strings.Contains(body, "not a number from 1 to 100") || !strings.Contains(body, "What confines it") {
			t.Errorf("%s %s: %d\n%s", path, form, res.StatusCode, body)
		}
	}
	if res, body := w.post(at+"/snapshots/a-name/delete", nil); res.StatusCode != 404 || !strings.Contains(body, "no snapshot of that identifier") {
		t.Errorf("by name: %d\n%s", res.StatusCode, body)
	}
	w.engine.refusal = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the sandbox has 1 runs going on %s", script), "wait for them, or stop them")
	for _, path := range []string{"/snapshots", "/snapshots/" + theSnapshot + "/rollback", "/snapshots/" + theSnapshot + "/delete", "/fork"} {
		res, body := w.post(at+path, url.Values{"count": {"1"}})
		if res.StatusCode != 409 || !strings.Contains(body, "1 runs going on") || !strings.Contains(body, "wait for them") || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s: %d\n%s", path, res.StatusCode, body)
		}
		if strings.Contains(body, script) {
			t.Errorf("%s has markup", path)
		}
	}
	if len(w.engine.actions) > 0 {
		t.Errorf("the engine did %v", w.engine.actions)
	}
	w.engine.refusal = nil
	w.engine.forks = []sandbox.Fork{{Sandbox: sandbox.Sandbox{ID: "sbx_cccccccccccccccccccccccccc", Name: "c" + script}}, {Err: sandbox.Errorf(sandbox.Exhausted, "no more room")}}
	res, body := w.post(at+"/fork", url.Values{"count": {"2"}})
	if res.StatusCode != 200 || !strings.Contains(body, "Only 1 of 2 copies were made: no more room") || !strings.Contains(body, "/ui/sandboxes/sbx_cccccccc") || strings.Contains(body, script) {
		t.Errorf("some copies: %d\n%s", res.StatusCode, body)
	}
}

// TestNoSnapshots has a driver without snapshots.
func TestNoSnapshots(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.NoSnapshots = sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver keeps no snapshots"), "copy the files out")
	})
	w.signIn("alice")
	_, body := w.get(Path + "sandboxes/" + box)
	if !strings.Contains(body, "There are none: this driver keeps no snapshots. You can copy the files out.") {
		t.Errorf("the page lacks the reason:\n%s", body)
	}
	for _, no := range []string{"Snapshot …", "Fork …", "Roll back …", "Delete …"} {
		if strings.Contains(body, no) {
			t.Errorf("the page has %q", no)
		}
	}
	w = newWorld(t, func(o *Options) {
		o.NoRollback = sandbox.Errorf(sandbox.Unsupported, "this driver cannot return a sandbox to a snapshot")
	})
	w.signIn("alice")
	if _, body := w.get(Path + "sandboxes/" + box); strings.Contains(body, "Roll back …") || !strings.Contains(body, "Delete …") || !strings.Contains(body, "Fork …") {
		t.Errorf("the page of a sandbox that cannot return is\n%s", body)
	}
	w = newWorld(t, nil)
	w.engine.box.State = sandbox.Stopped
	w.signIn("alice")
	if _, body := w.get(Path + "sandboxes/" + box); strings.Contains(body, "Roll back …") || !strings.Contains(body, "Delete …") {
		t.Errorf("the page of a sandbox that stopped is\n%s", body)
	}
}
