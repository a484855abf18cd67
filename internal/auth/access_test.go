package auth

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	made := make([]*Access, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = NewAccess(file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	one, two := sandbox.NewID(), sandbox.NewID()
	token, traffic := made[0].Token(one), made[0].TrafficToken(one)
	for _, a := range made {
		if !a.CheckTraffic(one, traffic) || a.Check(one, traffic) || a.CheckTraffic(one, token) || a.CheckTraffic(two, traffic) || a.CheckTraffic(one, "") {
			t.Error("the traffic token is not one of its own")
		}
		if !a.Check(one, token) {
			t.Error("processes of one state directory have different keys")
		}
		for _, bad := range []string{"", token[1:], token + "0", made[0].Token(two), one} {
			if a.Check(one, bad) {
				t.Errorf("%q gives access", bad)
			}
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("left beside the key: %v, %v", entries, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
	other, err := NewAccess(filepath.Join(t.TempDir(), "key"))
	if err != nil || other.Check(one, token) {
		t.Errorf("another state directory has the same key: %v", err)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAccess(file); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a broken key: %v; want unavailable", err)
	}
	if _, err := NewAccess(filepath.Join(file, "x")); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("no directory: %v; want unavailable", err)
	}
}
