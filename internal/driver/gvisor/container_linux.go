package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"
)

//go:linkname modifySpecForDirectfs gvisor.dev/gvisor/runsc/container.modifySpecForDirectfs
func modifySpecForDirectfs(*config.Config, *specs.Spec) error

//go:linkname initGoferConfs gvisor.dev/gvisor/runsc/container.(*Container).initGoferConfs
func initGoferConfs(*container.Container, config.Overlay2, *boot.PodMountHints, *boot.RootfsHint) error

// newContainer starts a box's kernel, up to where it waits to be told to start the
// guest, and keeps of it what gVisor keeps, as gVisor's own function of that purpose
// does; but it starts no gofer. What a box sees is in mounts: see openMounts. The
// specification has been written to the box's directory.
//
// The caller removes what is left if there is an error.
func (m *maker) newContainer(b *madeBox, spec *specs.Spec, mounts []*os.File, passed map[int]*os.File) (*container.Container, error) {
	if err := modifySpecForDirectfs(b.conf, spec); err != nil {
		return nil, err
	}
	id := b.record.Spec.ID
	c := &container.Container{
		ID:        id,
		Spec:      spec,
		BundleDir: b.dir,
		Status:    container.Running, // soon, or nobody asks
		CreatedAt: time.Now(),
		Saver:     container.StateFile{RootDir: b.conf.RootDir, ID: container.FullID{SandboxID: id, ContainerID: id}},
	}
	hint, err := boot.NewRootfsHint(spec)
	if err != nil {
		return nil, err
	}
	hints, err := boot.NewPodMountHints(spec)
	if err != nil {
		return nil, err
	}
	if err := initGoferConfs(c, b.conf.GetOverlay2(), hints, hint); err != nil {
		return nil, err
	}
	written, err := b.openUpper()
	if err != nil {
		return nil, err
	}
	defer written.Close()
	c.Sandbox, err = sandbox.New(b.conf, &sandbox.Args{
		ID:                  id,
		Spec:                spec,
		BundleDir:           b.dir,
		IOFiles:             mounts,
		GoferFilestoreFiles: []*os.File{written},
		GoferMountConfs:     c.GoferMountConfs,
		MountHints:          hints,
		Attached:            !b.record.Spec.Detached,
		PassFiles:           passed,
	})
	if err != nil {
		return nil, err
	}
	return c, errors.Join(m.hold(b, c.Sandbox.Getpid()), saveContainer(c))
}

// saveContainer keeps a container where gVisor looks for it, and does not make the
// file by which gVisor locks it while it does so: nobody else has this box yet.
func saveContainer(c *container.Container) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	id := c.Saver.ID
	name := fmt.Sprintf("%s_sandbox:%s.state", id.ContainerID, id.SandboxID)
	return os.WriteFile(filepath.Join(c.Saver.RootDir, name), data, 0o600)
}

// openUpper makes the file that all goes to that a box writes outside of its
// workspace. It has no name, so that it goes with the box.
func (b *madeBox) openUpper() (*os.File, error) {
	file, err := os.CreateTemp(b.dir, "upper-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	pgalloc.IMAWorkAroundForMemFile(file.Fd())
	return file, nil
}

// forgetContainer removes what gVisor keeps of a box whose processes are gone.
func (m *maker) forgetContainer(b *madeBox) error {
	if m.made(b) {
		// All of that are files, and the one that may be elsewhere is known.
		if err := os.Remove(b.container.Sandbox.ControlSocketPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return removeState(m.runscDir(), b.record.Spec.ID)
	}
	c, err := loadContainer(m.runscDir(), b.record.Spec.ID)
	if err != nil {
		return err
	}
	if c == nil && b.container != nil {
		// It was not saved any more, and only here is known where its socket is.
		if err := os.Remove(b.container.Sandbox.ControlSocketPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if c != nil {
		// Their numbers may be others' by now.
		c.Sandbox.Pid.Store(0)
		c.GoferPid.Store(0) // earlier versions had one
		if err := c.Destroy(); err != nil {
			return fmt.Errorf("destroy container: %w", err)
		}
	}
	// One that died while being made has no state, but perhaps its lock and
	// its socket.
	return removeState(m.runscDir(), b.record.Spec.ID)
}

// loadContainer loads what gVisor keeps of a box, or returns nil if it keeps
// nothing. gVisor makes a lock for whatever it is asked for, so it is asked only
// for what is there, and what it made for one that was just removed goes.
func loadContainer(runscDir, id string) (*container.Container, error) {
	if states, err := filepath.Glob(filepath.Join(runscDir, "*"+id+"*.state")); err != nil || len(states) == 0 {
		return nil, err
	}
	full := container.FullID{SandboxID: id, ContainerID: id}
	c, err := container.Load(runscDir, full, container.LoadOpts{Exact: true, SkipCheck: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, removeState(runscDir, id)
	}
	if err != nil {
		return nil, fmt.Errorf("load container: %w", err)
	}
	return c, nil
}

// removeState removes the files that gVisor keeps of a box.
func removeState(runscDir, id string) error {
	left, err := filepath.Glob(filepath.Join(runscDir, "*"+id+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
