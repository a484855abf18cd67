package docker_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPrivateRegistry names registries of which the engine would have to connect
// to addresses that are not public.
func TestPrivateRegistry(t *testing.T) {
	names := map[string][]netip.Addr{
		"public.example": {netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2a00:1450::1")},
		"inside.example": {netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.1")},
		"localhost":      {netip.MustParseAddr("127.0.0.1")},
	}
	with := func(registries ...string) *docker.Driver {
		d, err := docker.New(docker.Options{
			Engine: docker.Docker, StateDir: t.TempDir(), Registries: registries,
			Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
				if names[name] == nil {
					return nil, errors.New("no such host")
				}
				return names[name], nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	any, listed := with(), with("inside.example", "localhost:5000", "docker.io", "nowhere.example")
	for _, c := range []struct {
		d                 *docker.Driver
		name              string
		everybody, person bool
	}{
		{any, "python:3.12-slim", true, true},
		{any, "docker.io/team/x", true, true},
		{any, "public.example/x:1", true, true},
		{any, "public.example:5000/x:1", true, true},
		{any, "8.8.8.8/x:1", true, true},
		{any, "inside.example/x:1", false, true},
		{any, "nowhere.example/x:1", false, true},
		{any, "localhost:5000/x:1", false, true},
		{any, "127.0.0.1:5000/x:1", false, true},
		{any, "[::1]:5000/x:1", false, true},
		{any, "169.254.169.254/x:1", false, true},
		{listed, "python:3.12-slim", true, true},
		{listed, "inside.example/x:1", true, true},
		{listed, "localhost:5000/x:1", true, true},
		{listed, "nowhere.example/x:1", true, true},
		{listed, "public.example/x:1", false, false},
		{listed, "localhost:5001/x:1", false, false},
	} {
		for _, anywhere := range []bool{false, true} {
			want := c.everybody || anywhere && c.person
			err := docker.AllowedFrom(t.Context(), c.d, c.name, anywhere)
			if (err == nil) != want || err != nil && !errors.Is(err, sandbox.Unavailable) {
				t.Errorf("%s, anywhere %t: %v; want allowed %t", c.name, anywhere, err, want)
			}
		}
	}
}
