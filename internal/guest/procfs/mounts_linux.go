package procfs

import (
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
		m.ReadOnly = hasOption(f[5], "ro") || hasOption(g[2], "ro")
		var st unix.Statfs_t
		if unix.Statfs(m.Path, &st) == nil {
			m.Bytes = int64(st.Blocks) * st.Bsize
		}
		all = append(all, m)
	}
	return all, nil
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
