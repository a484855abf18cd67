package process

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// OwnCPUs returns the processors that this thread may run on.
func OwnCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	return cpusOf(&set), nil
}

func cpusOf(set *unix.CPUSet) []int {
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// Bind binds all threads of a process to cpus. threads that they start later
// inherit this.
func Bind(pid int, cpus []int) error {
	var want unix.CPUSet
	for _, cpu := range cpus {
		want.Set(cpu)
	}
	// A thread that is not bound yet may have started another meanwhile.
	for changed := true; changed; {
		changed = false
		tids, err := Threads(pid)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // one of the short-lived helpers has ended
		}
		if err != nil {
			return err
		}
		for _, tid := range tids {
			var got unix.CPUSet
			err := unix.SchedGetaffinity(tid, &got)
			if err == nil && got != want {
				changed = true
				if err = unix.SchedSetaffinity(tid, &want); err == nil {
					// The host kernel leaves out processors that are offline, or
					// not in the control group.
					err = unix.SchedGetaffinity(tid, &want)
				}
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("bind to CPUs %v: %w", cpus, err)
			}
		}
	}
	return nil
}
