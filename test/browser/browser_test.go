//go:build linux

// Package browser has tests that drive Chromium through the dashboard.
package browser

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// limit bounds the whole visit. It is generous: a machine may be busy.
const limit = 10 * time.Minute

// TestDashboard visits the pages of a server with real sandboxes.
func TestDashboard(t *testing.T) { run(t, "dashboard.mjs") }

// TestIssuer signs in at an issuer.
func TestIssuer(t *testing.T) { run(t, "signin.mjs") }

// run runs a script, which starts servers of its own. The script ends with an error at
// the first difference.
func run(t *testing.T, script string) {
	t.Helper()
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		missing(t, "GLOVEBOX_TEST_BINARY names no program: make test-browser")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "there is no chromium: make clients")
	}
	node, err := filepath.Abs("npm/node_modules/.bin/node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node); err != nil {
		missing(t, "the modules of npm are not installed: make clients")
	}
	// A path of a socket in the state directory is short everywhere.
	state, err := os.MkdirTemp("", "glovebox-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(state), os.RemoveAll(state+".yaml")); err != nil {
			t.Error(err)
		}
	})
	if out, err := exec.CommandContext(t.Context(), binary, "doctor", "--driver", "gvisor", "--state-dir", state).CombinedOutput(); err != nil {
		missing(t, "gvisor does not work here: "+string(out))
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, script)
	cmd.Env = append(os.Environ(), "GLOVEBOX="+binary, "CHROMIUM="+chromium, "STATE="+state)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatal(err)
	}
}

// missing skips the test, or fails it if GLOVEBOX_REQUIRE has browser.
func missing(t *testing.T, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "browser") {
		t.Fatal("GLOVEBOX_REQUIRE has browser: " + why)
	}
	t.Skip(why)
}
