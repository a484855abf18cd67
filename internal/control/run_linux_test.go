package control

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	c := Client{path}
	want := sandbox.RunRequest{
		Code: "print(1)", Language: "python", Args: []string{"a"}, Root: true, Timeout: time.Minute, Dir: "/x",
		Service: &sandbox.ServiceRequest{Name: "web", Restart: sandbox.RestartAlways, Ready: &sandbox.ReadyCheck{Port: 80, Timeout: time.Second}},
		New: sandbox.CreateRequest{
			Image: "i", Network: "a.example", Workspace: "w", Env: map[string]string{"A": "b"}, Limits: sandbox.Limits{CPUs: 1, Processes: 7},
		},
	}
	if _, err := c.Start(t.Context(), want); !errors.Is(err, ErrElsewhere) {
		t.Errorf("without a process: %v", err)
	}
	s, err := Serve(path, scripted{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := c.Start(t.Context(), want); !errors.Is(err, ErrElsewhere) || !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("at a process without a starter: %v", err)
	}
	var got sandbox.RunRequest
	s.OfferRuns(func(_ context.Context, req sandbox.RunRequest) (sandbox.Run, error) {
		got = req
		if req.Code == "" {
			return sandbox.Run{}, sandbox.WithRetryAfter(sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "no room"), "wait"), 7*time.Second)
		}
		return sandbox.Run{ID: "run_x", Service: &sandbox.Service{Name: "web"}}, nil
	})
	run, err := c.Start(t.Context(), want)
	if d := cmp.Diff(want, got); err != nil || d != "" || run.ID != "run_x" || run.Service.Name != "web" {
		t.Errorf("%+v, %v, -want +got\n%s", run, err, d)
	}
	if _, err := c.Start(t.Context(), sandbox.RunRequest{}); !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) != "wait" || sandbox.RetryAfterOf(err) != 7*time.Second || errors.Is(err, ErrElsewhere) {
		t.Errorf("a refused run: %v", err)
	}
	want.Code = strings.Repeat("x", maxRun)
	if _, err := c.Start(t.Context(), want); err == nil {
		t.Error("a description beyond the bound was taken")
	}
}
