package container

import "testing"

func TestInVolume(t *testing.T) {
	for dir, want := range map[string]bool{
		"/.glovebox-workspaces/wsp_a":      true,
		"/.glovebox-workspaces":            false,
		"/.glovebox-workspaces/":           false,
		"/.glovebox-workspaces/..":         false,
		"/.glovebox-workspaces/a/b":        false,
		"/.glovebox-workspaces/a/../b":     false,
		"/home/u/.glovebox-workspaces/wsp": false,
	} {
		if got := InVolume(dir); got != want {
			t.Errorf("InVolume(%q) is %t, want %t", dir, got, want)
		}
	}
}

func TestHostPath(t *testing.T) {
	for _, c := range []struct{ inside, outside, path, want string }{
		{"", "", "/data/w", "/data/w"},
		{"/data", "", "/data/w", "/data/w"},
		{"/data", "/srv/glovebox/", "/data/w/x", "/srv/glovebox/w/x"},
		{"/data", "/srv", "/database/w", "/database/w"},
		{"/data", "/srv", "/etc", "/etc"},
	} {
		if got := HostPath(c.inside, c.outside, c.path); got != c.want {
			t.Errorf("HostPath(%q, %q, %q) is %q, want %q", c.inside, c.outside, c.path, got, c.want)
		}
	}
}
