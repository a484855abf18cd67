package app

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// TestForget erases a principal with data of every kind, after an attempt that was
// interrupted. No file of the state directory has its data then, and that of another
// principal stays.
func TestForget(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Config.Audit.Enabled = true
	sys := mustOpen(t, o)
	ctx := t.Context()
	const alice, bob = sandbox.Principal("token:alice"), sandbox.Principal("token:bob")
	const marker = "b7e0c1-marker-of-"
	for _, p := range []sandbox.Principal{alice, bob} {
		name := strings.TrimPrefix(string(p), "token:")
		if _, _, err := sys.auth.Create(ctx, name); err != nil {
			t.Fatal(err)
		}
		run, err := sys.Engine.Start(ctx, p, sandbox.RunRequest{
			Code: "print('" + marker + name + "')", Language: "python", New: sandbox.CreateRequest{Workspace: "work-" + name},
		})
		if err != nil {
			t.Fatal(err)
		}
		if run, err = sys.Engine.Wait(ctx, p, run.ID); err != nil || run.Verdict.Code != sandbox.OK {
			t.Fatalf("%+v, %v", run.Verdict, err)
		}
		if err := sys.Engine.WriteFile(ctx, p, run.SandboxID, filepath.Join(t.TempDir(), "f"), strings.NewReader(marker+name), false); err != nil {
			t.Fatal(err)
		}
		if err := sys.store.AddMembers(ctx, "team", []sandbox.Principal{p}); err != nil {
			t.Fatal(err)
		}
		if err := sys.store.SetLimits(ctx, []AccountLimit{{Principal: p, Limit: usage.LimitSandboxes, Value: 9}}); err != nil {
			t.Fatal(err)
		}
	}
	held, err := sys.Held(ctx, alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"tokens", "sandboxes", "runs", "workspaces", "usage_days", "usage_hours", "meters", "group_members", "usage_limits"} {
		if held[kind] == 0 {
			t.Errorf("there is no record of the kind %s: %v", kind, held)
		}
	}
	bobs, err := sys.Held(ctx, bob)
	if err != nil {
		t.Fatal(err)
	}
	// An interruption after each step leaves what the next attempt finishes.
	for _, after := range []int{1, 2} {
		interrupted, cancel := context.WithCancel(ctx)
		steps := 0
		_, err := sys.Forget(interrupted, alice, func(string) {
			if steps++; steps == after {
				cancel()
			}
		})
		cancel()
		if err == nil {
			t.Fatalf("the attempt with an interruption after %d steps had no error", after)
		}
	}
	if _, err := sys.Forget(ctx, alice, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if held, err := sys.Held(ctx, alice); err != nil || len(held) > 0 {
		t.Errorf("left: %v, %v", held, err)
	}
	after, err := sys.Held(ctx, bob)
	if diff := cmp.Diff(bobs, after); err != nil || diff != "" {
		t.Errorf("another principal: %v, -before +after\n%s", err, diff)
	}
	if again, err := sys.Forget(ctx, alice, func(string) {}); err != nil || len(again) > 0 {
		t.Errorf("a second time: %v, %v", again, err)
	}
	found := map[string]bool{}
	err = filepath.WalkDir(o.Config.StateDir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range []string{"alice", "bob"} {
			if strings.Contains(string(text), marker+name) {
				found[name] = true
			}
		}
		return err
	})
	if err != nil || found["alice"] || !found["bob"] {
		t.Errorf("files have the data of %v, %v", found, err)
	}
	if log := readAll(t, AuditDir(o.Config)); !strings.Contains(log, `"action":"principal.forget"`) || !strings.Contains(log, `"action":"run.start","principal":"token:alice"`) {
		t.Errorf("the audit log is\n%s", log)
	}
}
