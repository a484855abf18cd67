package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
)

//go:linkname modifySpecForDirectfs gvisor.dev/gvisor/runsc/container.modifySpecForDirectfs
func modifySpecForDirectfs(*config.Config, *specs.Spec) error

//go:linkname initGoferConfs gvisor.dev/gvisor/runsc/container.(*Container).initGoferConfs
func initGoferConfs(*container.Container, config.Overlay2, *boot.PodMountHints, *boot.RootfsHint) error

// startKernel starts the sentry of a box, up to the point where it waits for the
// start of the guest. It does the work of gVisor's own functions for containers,
// but starts no gofer and stores less. mounts are the files that the box sees: see
// openMounts. The specification must be in the box's directory.
//
// If there is an error, the caller removes the partial box.
func (m *maker) startKernel(b *madeBox, spec *specs.Spec, mounts []*os.File, passed map[int]*os.File) error {
	if err := modifySpecForDirectfs(b.conf, spec); err != nil {
		return err
	}
	id := b.record.Spec.ID
	rootHint, err := boot.NewRootfsHint(spec)
	if err != nil {
		return err
	}
	hints, err := boot.NewPodMountHints(spec)
	if err != nil {
		return err
	}
	c := &container.Container{ID: id, Spec: spec, BundleDir: b.dir}
	if err := initGoferConfs(c, b.conf.GetOverlay2(), hints, rootHint); err != nil {
		return err
	}
	written, err := b.openUpper()
	if err != nil {
		return err
	}
	defer written.Close()
	b.kernel, err = runsc.New(b.conf, &runsc.Args{
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
		return diagnosis.ExplainStart(err)
	}
	if err := m.hold(b, b.kernel.Getpid()); err != nil {
		return diagnosis.ExplainStart(err)
	}
	return b.saveKernel()
}

// keptKernel is the stored description of a sentry, for later makers.
type keptKernel struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket"` // of gVisor's control protocol
}

const kernelFile = "kernel.json"

func (b *madeBox) saveKernel() error {
	return b.writeWhole(kernelFile, &keptKernel{PID: b.kernel.Getpid(), Socket: b.kernel.ControlSocketPath})
}

// loadKernel finds the sentry that another maker started for the box. There is none
// if that maker, or the machine, died before it stored the description.
func (m *maker) loadKernel(b *madeBox) error {
	var kept keptKernel
	root := b.dir
	data, err := os.ReadFile(filepath.Join(b.dir, kernelFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		root = m.earlierDir()
		if kept, err = m.loadEarlier(b.record.Spec.ID); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if json.Unmarshal(data, &kept) != nil {
			log.Warningf("%s of %s is damaged: taken for one without a kernel", kernelFile, b.record.Spec.ID)
			return nil
		}
	}
	if kept.PID > 0 {
		b.kernel = &runsc.Sandbox{ID: b.record.Spec.ID, ControlSocketPath: kept.Socket}
		b.kernel.Pid.Store(kept.PID)
		b.kernel.SetRootDir(root) // the directory of the socket, if the state directory was moved
	}
	return nil
}

// earlierDir returns the directory in which earlier versions had gVisor store its
// state.
func (m *maker) earlierDir() string { return filepath.Join(m.dir, "runsc") }

// loadEarlier returns the description of the sentry of an earlier version's box.
func (m *maker) loadEarlier(id string) (keptKernel, error) {
	data, err := os.ReadFile(filepath.Join(m.earlierDir(), fmt.Sprintf("%s_sandbox:%[1]s.state", id)))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return keptKernel{}, err
	}
	var state struct {
		Sandbox keptKernelEarlier `json:"sandbox"`
	}
	if json.Unmarshal(data, &state) != nil {
		log.Warningf("gVisor's state of %s is damaged: taken for one without a kernel", id)
	}
	return keptKernel(state.Sandbox), nil
}

// keptKernelEarlier is keptKernel with gVisor's field names.
type keptKernelEarlier struct {
	PID    int    `json:"pid"`
	Socket string `json:"controlSocketPath"`
}

// forgetKernel removes the files of an ended sentry outside of the box's directory.
func (m *maker) forgetKernel(b *madeBox) error {
	var left []string
	if b.kernel != nil {
		left = append(left, b.kernel.ControlSocketPath)
	}
	if !m.made(b) {
		// The socket of a sentry that died during its start is not recorded. gVisor
		// makes it elsewhere if there is no room in its own directory. Another
		// user's file may have that name, because it is not secret, so errors are
		// ignored.
		id := b.record.Spec.ID
		for _, dir := range []string{"/var/run", "/run", "/tmp"} {
			_ = os.Remove(filepath.Join(dir, "runsc-"+id+".sock"))
		}
		earlier, err := filepath.Glob(filepath.Join(m.earlierDir(), "*"+id+"*"))
		if err != nil {
			return err
		}
		left = append(left, earlier...)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openUpper makes the file for all data that a box writes outside of its workspace.
// It has no name, so that it disappears with the box. The caller closes it.
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
