package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEarlierGofer removes a box of an earlier version, whose gofer's number is
// another process's by now.
func TestEarlierGofer(t *testing.T) {
	other := exec.CommandContext(t.Context(), "sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	m := &maker{dir: t.TempDir(), boxes: map[string]*madeBox{}}
	id := sandbox.NewID()
	b := &madeBox{record: record{Spec: driver.Spec{ID: id}}, dir: m.boxDir(id)}
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.MkdirAll(m.earlierDir(), 0o700), b.save()); err != nil {
		t.Fatal(err)
	}
	c := &container.Container{
		ID: id, Spec: &specs.Spec{}, Status: container.Running, Sandbox: &runsc.Sandbox{ID: id, MountHints: &boot.PodMountHints{}},
		Saver: container.StateFile{RootDir: m.earlierDir(), ID: container.FullID{SandboxID: id, ContainerID: id}},
	}
	c.GoferPid.Store(other.Process.Pid)
	if err := c.Saver.LockForNew(); err != nil {
		t.Fatal(err)
	}
	if err := c.Saver.SaveLocked(c); err != nil {
		t.Fatal(err)
	}
	c.Saver.UnlockOrDie()
	if err := m.destroy(id); err != nil {
		t.Errorf("destroy: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(m.dir, "*", "*"+id+"*")); len(left) > 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("another process was killed: %v", err)
	}
}

// TestDamaged removes boxes of which something that is kept is not whole.
func TestDamaged(t *testing.T) {
	for _, name := range []string{recordFile, kernelFile, "state"} {
		t.Run(name, func(t *testing.T) {
			m := &maker{dir: t.TempDir(), boxes: map[string]*madeBox{}}
			id := sandbox.NewID()
			b := &madeBox{record: record{Spec: driver.Spec{ID: id}}, dir: m.boxDir(id)}
			if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.MkdirAll(m.earlierDir(), 0o700), b.save()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(b.dir, name)
			if name == "state" {
				path = filepath.Join(m.earlierDir(), id+"_sandbox:"+id+".state")
			}
			if err := os.WriteFile(path, []byte(`{"pid": `), 0o600); err != nil {
				t.Fatal(err)
			}
			if refs, err := m.list(); len(refs) != 1 || err != nil {
				t.Errorf("listed: %q, %v", refs, err)
			}
			if _, err := m.find(id); !errors.Is(err, driver.ErrGone) {
				t.Errorf("found: %v; want that it is gone", err)
			}
			if err := m.destroy(id); err != nil {
				t.Errorf("destroy: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(m.dir, "*", "*"+id+"*")); len(left) > 0 || err != nil {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}
