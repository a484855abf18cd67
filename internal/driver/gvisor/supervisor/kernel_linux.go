package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/log"
	runsc "gvisor.dev/gvisor/runsc/sandbox"
)

// keptKernel is the stored description of a sentry, for later supervisors.
type keptKernel struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket"` // of gVisor's control protocol
}

const kernelFile = "kernel.json"

func (b *box) saveKernel() error {
	return b.writeWhole(kernelFile, &keptKernel{PID: b.kernel.Getpid(), Socket: b.kernel.ControlSocketPath})
}

// loadKernel finds the sentry that another supervisor started for the box. There is
// none if that supervisor, or the machine, died before it stored the description.
func (b *box) loadKernel(earlier string) error {
	var kept keptKernel
	root := b.dir
	data, err := os.ReadFile(filepath.Join(b.dir, kernelFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		root = earlier
		if kept, err = loadEarlier(earlier, b.record.Spec.ID); err != nil {
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

// loadEarlier returns the description of the sentry of an earlier version's box.
func loadEarlier(dir, id string) (keptKernel, error) {
	data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s_sandbox:%[1]s.state", id)))
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
