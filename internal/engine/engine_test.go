package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestCheckRunDefaults(t *testing.T) {
	rules := Options{RunTimeout: time.Minute, MaxRunTimeout: 5 * time.Second}.withDefaults().rules(driver.Info{})
	req := sandbox.RunRequest{Code: "x", Dir: "a/../b"}
	if err := rules.CheckRun(&req); err != nil {
		t.Fatal(err)
	}
	if req.Timeout != 5*time.Second || req.Dir != "/data/a/../b" {
		t.Errorf("timeout %v, dir %s", req.Timeout, req.Dir)
	}
}

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{
		"": "sandbox", "My Box": "my-box", "---": "sandbox", "ü": "sandbox",
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		if got := hostname(name); got != want {
			t.Errorf("hostname(%q) = %q, want %q", name, got, want)
		}
	}
}
