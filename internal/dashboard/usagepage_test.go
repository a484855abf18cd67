package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/audit"
)

// TestUsage shows a member its own usage only, and the operator that of everybody.
func TestUsage(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	_, body := w.get(Path + "usage")
	for _, want := range []string{"1.5 s", "1 MiB", "Mon 23 Nov 2026", "<rect", "CPU time per day", "30m of 1h"} {
		if !strings.Contains(body, want) {
			t.Errorf("alice's page lacks %q:\n%s", want, body)
		}
	}
	for _, other := range []string{"somebody-else", "1 min", "By principal", "/ui/audit"} {
		if strings.Contains(body, other) {
			t.Errorf("alice sees %q:\n%s", other, body)
		}
	}
	for _, path := range []string{"usage?by=principal", "usage?by=group", "usage?by=x", "usage?days=8", "usage?days=x"} {
		if res, body := w.get(Path + path); res.StatusCode != 400 || strings.Contains(body, "somebody-else") {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	w.signIn("bob")
	if _, body := w.get(Path + "usage"); !strings.Contains(body, "Nothing was used") || strings.Contains(body, "1.5 s") {
		t.Errorf("bob's page:\n%s", body)
	}
	w.signIn("operator")
	for by, want := range map[string][]string{
		"day": {"1 min 1 s"}, "principal": {"somebody-else", "alice", "1 min", "1.5 s"}, "group": {"g&lt;script", "in no group"},
	} {
		_, body := w.get(Path + "usage?days=7&by=" + by)
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("by %s lacks %q:\n%s", by, text, body)
			}
		}
		if strings.Contains(body, script) {
			t.Errorf("by %s has markup of a name:\n%s", by, body)
		}
	}
}

// TestAudit shows the log to the operator only.
func TestAudit(t *testing.T) {
	log := &auditLog{}
	w := newWorld(t, func(o *Options) { o.Audit = log })
	w.signIn("alice")
	for _, do := range []func() (int, string){
		func() (int, string) { res, body := w.get(Path + "audit"); return res.StatusCode, body },
		func() (int, string) {
			res, body := w.post(Path+"audit/verify", url.Values{})
			return res.StatusCode, body
		},
	} {
		if status, body := do(); status != 403 || strings.Contains(body, "refused.test") || strings.Contains(body, "12345") {
			t.Errorf("alice: %d %s", status, body)
		}
	}
	w.signIn("operator")
	_, body := w.get(Path + "audit")
	for _, want := range []string{"run.start", "somebody-else", "refused.test", "Not verified yet", "Sign out", "&lt;script&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, script) {
		t.Errorf("the page has markup of a record:\n%s", body)
	}
	for query, want := range map[string]bool{
		"action=run": false, "action=run.start": false, "action=network.refuse": true, "principal=alice": false, "principal=somebody-else": true, "refused=on": true, "sandbox=" + box: false,
	} {
		if _, body := w.get(Path + "audit?" + query); strings.Contains(body, "refused.test") != want || strings.Contains(body, "id=\"sandbox\"") == strings.Contains(body, "No record matches") {
			t.Errorf("%s:\n%s", query, body)
		}
	}
	if res, _ := w.post(Path+"audit/verify", url.Values{}); res.StatusCode != 303 {
		t.Errorf("verify: %d", res.StatusCode)
	}
	if _, body := w.get(Path + "audit"); !strings.Contains(body, "The log is intact") || !strings.Contains(body, "12345 records") {
		t.Errorf("after a verification:\n%s", body)
	}
	log.wrong = &audit.Broken{File: "current", Line: 7, Reason: "the line was changed"}
	w.post(Path+"audit/verify", url.Values{})
	if _, body := w.get(Path + "audit"); !strings.Contains(body, "The log was changed") || !strings.Contains(body, "current:7") {
		t.Errorf("a changed log:\n%s", body)
	}
	w = newWorld(t, func(o *Options) { o.Audit = nil })
	w.signIn("operator")
	if _, body := w.get(Path + "audit"); !strings.Contains(body, "No audit log") {
		t.Errorf("without a log:\n%s", body)
	}
}
