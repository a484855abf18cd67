package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gvisor.dev/gvisor/pkg/log"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
)

// keptKernel is the stored description of a sentry, for later supervisors.
type keptKernel struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket"` // of gVisor's control protocol
}

// KeptFile is the name of the description in the directory of a box.
const KeptFile = "kernel.json"

// Keep stores the description of the sentry of the box in dir.
func Keep(dir string, kernel *runsc.Sandbox) error {
	data, err := json.Marshal(&keptKernel{PID: kernel.Getpid(), Socket: kernel.ControlSocketPath})
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(dir, KeptFile), data, 0o600)
}

// Kept finds the sentry that another supervisor started for the box id in dir. It
// returns nil if there is none: that supervisor, or the machine, died before it stored
// the description. earlier is the directory where earlier versions stored it.
func Kept(dir, earlier, id string) (*runsc.Sandbox, error) {
	var kept keptKernel
	root := dir
	data, err := os.ReadFile(filepath.Join(dir, KeptFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		root = earlier
		if kept, err = loadEarlier(earlier, id); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		if json.Unmarshal(data, &kept) != nil {
			log.Warningf("%s of %s is damaged: taken for one without a kernel", KeptFile, id)
			return nil, nil
		}
	}
	if kept.PID <= 0 {
		return nil, nil
	}
	kernel := &runsc.Sandbox{ID: id, ControlSocketPath: kept.Socket}
	kernel.Pid.Store(kept.PID)
	kernel.SetRootDir(root) // the directory of the socket, if the state directory was moved
	return kernel, nil
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
