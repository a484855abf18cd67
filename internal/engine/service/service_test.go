package service

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestCheck(t *testing.T) {
	ready := func(r sandbox.ReadyCheck) sandbox.ServiceRequest { return sandbox.ServiceRequest{Ready: &r} }
	for name, c := range map[string]struct {
		req  sandbox.ServiceRequest
		want string // the beginning of the error
	}{
		"Least":       {sandbox.ServiceRequest{}, ""},
		"Port":        {ready(sandbox.ReadyCheck{Port: 65535}), ""},
		"Output":      {ready(sandbox.ReadyCheck{Output: `^Listening on \d+`, Timeout: time.Hour}), ""},
		"Command":     {ready(sandbox.ReadyCheck{Command: "true"}), ""},
		"LongName":    {sandbox.ServiceRequest{Name: strings.Repeat("x", maxName+1)}, "name:"},
		"Controls":    {sandbox.ServiceRequest{Name: "a\nb"}, "name:"},
		"Policy":      {sandbox.ServiceRequest{Restart: "sometimes"}, "restart:"},
		"Wake":        {sandbox.ServiceRequest{Wake: "always"}, "wake:"},
		"WakeRequest": {sandbox.ServiceRequest{Wake: sandbox.WakeRequest}, ""},
		"NoCheck":     {ready(sandbox.ReadyCheck{}), "ready:"},
		"TwoChecks":   {ready(sandbox.ReadyCheck{Port: 1, Output: "x"}), "ready:"},
		"HighPort":    {ready(sandbox.ReadyCheck{Port: 65536}), "ready.port:"},
		"LowPort":     {ready(sandbox.ReadyCheck{Port: -1}), "ready.port:"},
		"Pattern":     {ready(sandbox.ReadyCheck{Output: "("}), "ready.output:"},
		"Costly":      {ready(sandbox.ReadyCheck{Output: "(a{1,100}){1,9}b{1000}c{1000}"}), "ready.output:"},
		"LongPattern": {ready(sandbox.ReadyCheck{Output: strings.Repeat("x", maxPattern+1)}), "ready:"},
		"LongCommand": {ready(sandbox.ReadyCheck{Command: strings.Repeat("x", maxCommand+1)}), "ready:"},
		"NUL":         {ready(sandbox.ReadyCheck{Command: "a\x00"}), "ready.command:"},
		"Short":       {ready(sandbox.ReadyCheck{Port: 1, Timeout: time.Millisecond}), "timeout_seconds of ready:"},
		"Long":        {ready(sandbox.ReadyCheck{Port: 1, Timeout: time.Hour + 1}), "timeout_seconds of ready:"},
	} {
		err := Check(&c.req)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, sandbox.Invalid) || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	got := ready(sandbox.ReadyCheck{Port: 80})
	if err := Check(&got); err != nil {
		t.Fatal(err)
	}
	want := sandbox.ServiceRequest{Name: "service", Restart: sandbox.RestartNever, Ready: &sandbox.ReadyCheck{Port: 80, Timeout: time.Minute}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("defaults: -want +got\n%s", d)
	}
}

func TestAgain(t *testing.T) {
	for p, want := range map[sandbox.RestartPolicy][2]bool{
		sandbox.RestartNever: {false, false}, sandbox.RestartOnFailure: {false, true}, sandbox.RestartAlways: {true, true},
	} {
		if got := [2]bool{Again(p, false), Again(p, true)}; got != want {
			t.Errorf("%s: after success and failure %v, want %v", p, got, want)
		}
	}
}

// TestBackoff crashes in a loop, and once after a healthy minute.
func TestBackoff(t *testing.T) {
	var b Backoff
	var got []time.Duration
	for range 8 {
		got = append(got, b.Wait(59*time.Second))
	}
	got = append(got, b.Wait(time.Minute), b.Wait(0))
	var want []time.Duration
	for _, s := range []int{1, 2, 4, 8, 16, 32, 60, 60, 1, 2} {
		want = append(want, time.Duration(s)*time.Second)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		pattern string
		data    []string
		want    bool
	}{
		"Whole":     {"^ready$", []string{"a\nready\nb\n"}, true},
		"InParts":   {"^ready$", []string{"a\nre", "ady\r", "\n"}, true},
		"Unended":   {"ready", []string{"not yet\nalmost ready"}, true},
		"LongStart": {"^a", []string{strings.Repeat("a", maxUnended+1)}, false},
		"LongEnd":   {"^a", []string{strings.Repeat("a", maxUnended+1), "\n"}, true},
		"TwoLines":  {"a.*b", []string{"a\nb\n"}, false},
		"Late":      {"x", []string{"a\n", "", "x"}, true},
		"Beyond":    {"x$", []string{strings.Repeat("a", maxLine), "x\n"}, false},
		"AfterLong": {"^x$", []string{strings.Repeat("a", 3*maxLine), "\nx\n"}, true},
	} {
		l, err := NewLines(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, d := range c.data {
			got = got || l.Match([]byte(d))
		}
		if got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if cap(l.line) > 2*maxLine {
			t.Errorf("%s: holds %d bytes", name, cap(l.line))
		}
	}
}
