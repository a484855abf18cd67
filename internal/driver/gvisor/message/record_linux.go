package message

import (
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
)

// Record is the description of a box on disk. It exists before the first resource
// of the box is made and until the last one is gone. It is enough to clean up after
// a supervisor that died at any point.
type Record struct {
	Spec driver.Spec `json:"spec"`
	// Cgroup is nil if the box has no control group.
	Cgroup *cgroup.Group `json:"cgroup,omitempty"`
	// CPUSet lists the processors that the box is bound to, if this is the
	// mechanism of its CPU limit.
	CPUSet []int `json:"cpu_set,omitempty"`
	// WatchMemory means that the supervisor enforces the memory limit itself.
	WatchMemory bool `json:"watch_memory,omitempty"`
	// Linked means that the box has an interface besides its loopback, independent
	// of its current policy.
	Linked bool `json:"linked,omitempty"`
	// CountsAll means that the sentry applies the process limit to the programs of
	// all users together. Boxes of an earlier version lack the field; their sentry
	// applies it to each user.
	CountsAll bool `json:"counts_all,omitempty"`
	// UserIsRoot means that programs run as sandbox-root, also if another user is
	// requested: it is the only user of the box that a file of the host can belong
	// to.
	UserIsRoot bool `json:"user_is_root,omitempty"`
	// FirstUser is the host user that is uid 0 of the box: see users.Range. If it is
	// 0, the box has the user numbers of its supervisor. If root then runs the server,
	// WhyHostUsers gives the reason; it is empty in boxes of earlier versions.
	FirstUser    int    `json:"first_user,omitempty"`
	WhyHostUsers string `json:"why_host_users,omitempty"`
	// Root names the file of the box's image, if it is not the host's.
	Root string `json:"root,omitempty"`
	// MemoryKills counts the kills before the box was saved, if it was.
	MemoryKills int `json:"memory_kills,omitempty"`
	// CPUTime is what the processes used that have ended, if the box was saved or has
	// ended. GroupCPUTime is the part of it that Cgroup counted, so that a supervisor
	// that died before it removed the group does not count that part twice.
	CPUTime      time.Duration `json:"cpu_time,omitempty"`
	GroupCPUTime time.Duration `json:"group_cpu_time,omitempty"`
}

// LinkName is the name of a box's interface inside the box.
const LinkName = "eth0"
