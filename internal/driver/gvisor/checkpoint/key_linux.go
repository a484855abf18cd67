package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// Keys makes the keys of states on this machine, for this program. It reads the
// executables once.
type Keys struct {
	Guest string // the path of the guest's executable

	once  sync.Mutex
	known state.Key
}

// Of returns the key of a box's state. gVisor's own check of the specification is off:
// it does not compare builds, and compares paths that differ for each box.
func (k *Keys) Of(rec *message.Record) (state.Key, error) {
	k.once.Lock()
	defer k.once.Unlock()
	if k.known.Guest == "" {
		program, err := hashFile("/proc/self/exe")
		if err != nil {
			return state.Key{}, err
		}
		guest, err := hashFile(k.Guest)
		if err != nil {
			return state.Key{}, err
		}
		k.known = state.Key{Program: program, Guest: guest, CPU: cpu()}
	}
	spec := &rec.Spec
	limits := spec.Limits
	limits.MemoryBytes, limits.Idle, limits.Lifetime = 0, 0, 0 // not in the state
	shape, err := json.Marshal([]any{limits, rec.Linked, spec.Workspace != "", rec.UserIsRoot, rec.FirstUser, spec.Image == sandbox.ImageHost, spec.Writable, spec.Containers})
	if err != nil {
		return state.Key{}, err
	}
	key := k.known
	key.Root, key.Shape = rec.Root, string(shape)
	return key, nil
}

// hashFile returns the SHA-256 of a file, in hexadecimal.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// cpu returns a hash of the processor's features. Programs see them all, because
// the sentry does not trap CPUID.
func cpu() string {
	cpuid.Initialize()
	features := cpuid.HostFeatureSet()
	var info strings.Builder
	features.WriteCPUInfoTo(0, 1, &info)
	h := sha256.New()
	for line := range strings.Lines(info.String()) {
		if !strings.HasPrefix(line, "cpu MHz") && !strings.HasPrefix(line, "bogomips") && !strings.HasPrefix(line, "BogoMIPS") {
			h.Write([]byte(line)) // never fails
		}
	}
	size, align := features.ExtendedStateSize()
	fmt.Fprintf(h, "%d %d", size, align)
	return hex.EncodeToString(h.Sum(nil))
}
