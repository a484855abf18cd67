package engine

import (
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
