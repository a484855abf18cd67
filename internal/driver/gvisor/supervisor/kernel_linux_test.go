package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
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
	s := &supervisor{dir: t.TempDir(), boxes: map[string]*box{}}
	id := sandbox.NewID()
	b := &box{record: message.Record{Spec: driver.Spec{ID: id}}, dir: s.boxDir(id)}
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.MkdirAll(s.earlierDir(), 0o700), b.save()); err != nil {
		t.Fatal(err)
	}
	c := &container.Container{
		ID: id, Spec: &specs.Spec{}, Status: container.Running, Sandbox: &runsc.Sandbox{ID: id, MountHints: &boot.PodMountHints{}},
		Saver: container.StateFile{RootDir: s.earlierDir(), ID: container.FullID{SandboxID: id, ContainerID: id}},
	}
	c.GoferPid.Store(other.Process.Pid)
	c.Sandbox.Pid.Store(4711)
	c.Sandbox.ControlSocketPath = filepath.Join(s.earlierDir(), "socket")
	if err := c.Saver.LockForNew(); err != nil {
		t.Fatal(err)
	}
	if err := c.Saver.SaveLocked(c); err != nil {
		t.Fatal(err)
	}
	c.Saver.UnlockOrDie()
	if loaded, err := s.load(id); err != nil || loaded.sentry() != 4711 || loaded.kernel.Load().ControlSocketPath != c.Sandbox.ControlSocketPath {
		t.Errorf("loaded: %+v, %v", loaded, err)
	}
	if _, err := s.destroy(id); err != nil {
		t.Errorf("destroy: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*", "*"+id+"*")); len(left) > 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("another process was killed: %v", err)
	}
}

// TestDamaged removes boxes of which something that is kept is not whole, or not
// theirs.
func TestDamaged(t *testing.T) {
	for _, tt := range []struct{ name, file, content string }{
		{"record in part", recordFile, `{"spec": `},
		{"record of nothing", recordFile, `{}`},
		{"record of another", recordFile, `{"spec": {"ID": "sbx_another"}}`},
		{"kernel in part", sentry.KeptFile, `{"pid": `},
		{"earlier state in part", "", `{"sandbox": `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &supervisor{dir: t.TempDir(), boxes: map[string]*box{}}
			id := sandbox.NewID()
			b := &box{record: message.Record{Spec: driver.Spec{ID: id}}, dir: s.boxDir(id)}
			if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.MkdirAll(s.earlierDir(), 0o700), b.save()); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(s.earlierDir(), "sbx_another_sandbox:sbx_another.state")
			path := filepath.Join(b.dir, tt.file)
			if tt.file == "" {
				path = filepath.Join(s.earlierDir(), id+"_sandbox:"+id+".state")
			}
			if err := errors.Join(os.WriteFile(other, nil, 0o600), os.WriteFile(path, []byte(tt.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			if refs, err := s.list(); len(refs) != 1 || err != nil {
				t.Errorf("listed: %q, %v", refs, err)
			}
			if _, err := s.find(id); !errors.Is(err, driver.ErrGone) {
				t.Errorf("found: %v; want that it is gone", err)
			}
			// What cannot be removed, as if it were somebody else's.
			foreign := filepath.Join("/tmp", "runsc-"+id+".sock")
			if err := os.MkdirAll(filepath.Join(foreign, "full"), 0o700); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(foreign)
			if _, err := s.destroy(id); err != nil {
				t.Errorf("destroy: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(s.dir, "*", "*")); !slices.Equal(left, []string{other}) || err != nil {
				t.Errorf("left: %q, %v; want %q alone", left, err, other)
			}
		})
	}
}

// TestAdopted has another supervisor take a box over, which knows of its kernel
// what the first one kept.
func TestAdopted(t *testing.T) {
	s := &supervisor{dir: t.TempDir(), boxes: map[string]*box{}}
	id := sandbox.NewID()
	b := &box{record: message.Record{Spec: driver.Spec{ID: id}}, dir: s.boxDir(id)}
	b.kernel.Store(&runsc.Sandbox{ID: id, ControlSocketPath: filepath.Join(b.dir, "socket")})
	b.kernel.Load().Pid.Store(4711)
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), b.save(), sentry.Keep(b.dir, b.kernel.Load())); err != nil {
		t.Fatal(err)
	}
	loaded, err := s.load(id)
	if err != nil || loaded.sentry() != 4711 || loaded.kernel.Load().ControlSocketPath != b.kernel.Load().ControlSocketPath || loaded.kernel.Load().ID != id {
		t.Errorf("loaded: %+v, %v", loaded, err)
	}
	if files, err := filepath.Glob(filepath.Join(b.dir, "*.new")); len(files) > 0 || err != nil {
		t.Errorf("left: %q, %v", files, err)
	}
}
