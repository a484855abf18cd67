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
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
)

// startKernel starts the sentry of a box, up to the point where it waits for the
// start of the guest. mounts are the files that the box sees: see openMounts. The
// specification must be in the box's directory.
//
// If there is an error, the caller removes the partial box.
func (m *maker) startKernel(b *madeBox, spec *specs.Spec, mounts []*os.File, passed map[int]*os.File) error {
	var err error
	b.kernel, err = sentry.Start(b.conf, spec, sentry.StartOptions{
		ID:       b.record.Spec.ID,
		Dir:      b.dir,
		Mounts:   mounts,
		Passed:   passed,
		Attached: !b.record.Spec.Detached,
	})
	if err != nil {
		return err
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
