package procfs

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// maxMounts bounds the mounts in a reply.
const maxMounts = 256

// Mounts returns the file systems that are mounted.
func Mounts() ([]guestapi.Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []guestapi.Mount
	for line := range strings.Lines(string(text)) {
		// id parent device root path options [optional ...] - type source super
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 || len(all) == maxMounts {
			continue
		}
		m := guestapi.Mount{Path: unescapeMount(f[4]), Type: g[0], Device: f[2]}
		m.ReadOnly = hasOption(f[5], "ro") || hasOption(g[2], "ro") || closed(m.Path)
		var st unix.Statfs_t
		if unix.Statfs(m.Path, &st) == nil {
			m.Bytes = int64(st.Blocks) * st.Bsize
		}
		all = append(all, m)
	}
	return all, nil
}

// closed reports whether no program of this process's user can write what is mounted
// at path: a file that it may not write, or anything that it cannot reach. Root's
// programs reach and write everything. The kubelet mounts single files of its node.
func closed(path string) bool {
	if os.Geteuid() == 0 {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return errors.Is(err, unix.EACCES)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && int(st.Uid) != os.Geteuid() && errors.Is(unix.Access(path, unix.W_OK), unix.EACCES)
}

// unescapeMount undoes the escapes of the OS kernel in a mount's path.
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

func hasOption(list, name string) bool {
	for o := range strings.SplitSeq(list, ",") {
		if o == name {
			return true
		}
	}
	return false
}
