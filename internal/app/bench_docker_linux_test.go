//go:build !nogvisor

package app

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// BenchmarkEngine compares sandboxes by Docker with docker run and docker exec
// of the same image, in turn. It needs the engine that test/docker.sh starts.
func BenchmarkEngine(b *testing.B) {
	host := os.Getenv("GLOVEBOX_TEST_DOCKER")
	if host == "" {
		b.Skip("GLOVEBOX_TEST_DOCKER is not set: run this by test/docker.sh")
	}
	c := config.Default(func(string) string { return "" })
	c.StateDir, c.Driver, c.Docker.Host = b.TempDir(), "docker", host
	sys, err := Open(b.Context(), Options{Config: c})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := sys.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	create := func() string {
		s, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{Image: "python:3-slim"})
		if err != nil {
			b.Fatal(err)
		}
		return s.ID
	}
	stop := func(id string) {
		if err := sys.Engine.Stop(b.Context(), sandbox.Local, id); err != nil {
			b.Fatal(err)
		}
	}
	cli := func(args ...string) []string { return append([]string{"docker", "--host", host}, args...) }
	stop(create()) // the guest is in its volume from now on

	b.Run("Create", func(b *testing.B) {
		var ours, theirs series
		for b.Loop() {
			began := time.Now()
			id := create()
			ours = append(ours, time.Since(began))
			stop(id)
			theirs = append(theirs, firstOutput(b, cli("run", "--rm", "--network", "none", "python:3-slim", "echo", "up")...))
		}
		report(b, []string{"create", "docker-run"}, ours, theirs)
	})
	b.Run("Run", func(b *testing.B) {
		id := create()
		defer stop(id)
		out, err := exec.CommandContext(b.Context(), "docker", cli("run", "-d", "--rm", "--network", "none", "python:3-slim", "sleep", "600")[1:]...).Output()
		if err != nil {
			b.Fatal(err)
		}
		container := strings.TrimSpace(string(out))
		defer exec.Command("docker", cli("kill", container)[1:]...).Run()
		var live, fresh, theirs series
		run := func(req sandbox.RunRequest) time.Duration {
			began := time.Now()
			req.SandboxID = id
			r, err := sys.Engine.Start(b.Context(), sandbox.Local, req)
			if err == nil {
				r, err = sys.Engine.Wait(b.Context(), sandbox.Local, r.ID)
			}
			if err != nil || r.Verdict.Code != sandbox.OK {
				b.Fatalf("%v, %+v", err, r.Verdict)
			}
			return time.Since(began)
		}
		run(sandbox.RunRequest{Code: "print(1)", Language: "python", Context: sandbox.DefaultContext})
		for b.Loop() {
			live = append(live, run(sandbox.RunRequest{Code: "print(1)", Language: "python", Context: sandbox.DefaultContext}))
			fresh = append(fresh, run(sandbox.RunRequest{Argv: []string{"python3", "-c", "print(1)"}}))
			theirs = append(theirs, firstOutput(b, cli("exec", container, "python3", "-c", "print(1)")...))
		}
		report(b, []string{"run-code", "run-python3", "docker-exec"}, live, fresh, theirs)
	})
}
