package sentry

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
)

// sandboxArgs makes the sentry show its programs the memory and the processors that
// they may use, because programs size heaps and thread pools by them. gVisor itself
// does this only for a cgroup that it made. The limits are those of the box's
// specification.
func sandboxArgs(args []string, spec *specs.Spec) []string {
	mem, cpus := limitsOf(spec)
	args = slices.Clone(args)
	for i := 0; i+1 < len(args); i++ {
		if args[i] == "--total-memory" && mem > 0 {
			args[i+1] = strconv.FormatInt(mem, 10)
		}
	}
	if at := slices.Index(args, "boot"); at >= 0 && cpus > 0 && !slices.Contains(args, "--cpu-num") {
		args = slices.Insert(args, at+1, "--cpu-num", strconv.Itoa(cpus))
	}
	return args
}

// openedSpec reads the specification from the descriptor that the process received.
// It does not move the file's offset. It returns nil if there is none.
func openedSpec(args []string) *specs.Spec {
	fd := -1
	for _, a := range args {
		if s, found := strings.CutPrefix(a, "--spec-fd="); found {
			fd, _ = strconv.Atoi(s)
		}
	}
	if fd < 3 {
		return nil
	}
	// Pread leaves the offset unchanged. The process has no right to open the file
	// again.
	data := make([]byte, 1<<20)
	n, err := unix.Pread(fd, data, 0)
	if err != nil {
		return nil
	}
	var spec specs.Spec
	if err := json.Unmarshal(data[:n], &spec); err != nil {
		return nil
	}
	return &spec
}

// limitsOf returns the limits of a specification; 0 means no limit.
func limitsOf(spec *specs.Spec) (mem int64, cpus int) {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return 0, 0
	}
	r := spec.Linux.Resources
	if r.Memory != nil && r.Memory.Limit != nil {
		mem = *r.Memory.Limit
	}
	if r.CPU != nil && r.CPU.Quota != nil && r.CPU.Period != nil && *r.CPU.Period > 0 {
		cpus = allowance.VisibleCPUs(float64(*r.CPU.Quota) / float64(*r.CPU.Period))
	}
	return mem, cpus
}
