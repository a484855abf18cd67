package dockerapi

import (
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
)

// Tmpfs returns the mount options of a file system in memory.
func (e *Engine) Tmpfs(s container.Scratch) string {
	opts := []string{
		"rw", "nosuid", "nodev", "exec",
		"size=" + strconv.FormatInt(s.Bytes, 10),
		"mode=" + strconv.FormatInt(int64(s.Mode), 8),
	}
	if e.Name == Podman {
		// Without notmpcopyup, Podman copies the image's files there. Podman has no
		// option to bound the number of names; their memory counts as the box's.
		opts = append(opts, "notmpcopyup")
	} else {
		opts = append(opts, "nr_inodes="+strconv.FormatInt(max(s.Bytes/4096, 256), 10))
	}
	return strings.Join(opts, ",")
}
