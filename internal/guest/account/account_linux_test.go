package account

import "testing"

func TestRelativePathsAndHome(t *testing.T) {
	a := &Account{Home: "/home/user"}
	for in, want := range map[string]string{
		"x": "/home/user/x", "../x": "/home/x", "~": "/home/user", "~/x": "/home/user/x", "~x": "/home/user/~x",
		"/a/../../b": "/b", "/": "/", ".": "/home/user", "/a//b/": "/a/b",
	} {
		if got := a.Path(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
