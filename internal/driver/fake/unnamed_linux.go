package fake

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.UnnamedLister = (*box)(nil)

// UnnamedFiles implements [driver.UnnamedLister]. It does not list a file that is
// only mapped.
func (b *box) UnnamedFiles(context.Context) ([]driver.UnnamedFile, error) {
	sup, err := findSupervisor(b.dir)
	if err != nil {
		return nil, sandbox.Wrap(err, "list files without a name", b.id)
	}
	defer sup.close()
	processes, err := below(sup.proc.pid)
	if err != nil {
		return nil, sandbox.Wrap(err, "list files without a name", b.id)
	}
	var files []driver.UnnamedFile
	seen := map[driver.UnnamedFile]bool{}
	for _, p := range processes {
		dir := fmt.Sprintf("/proc/%d/fd/", p.pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the process has ended
		}
		for _, e := range entries {
			name, err := os.Readlink(dir + e.Name())
			if err != nil || !strings.HasPrefix(name, b.spec.Workspace+"/") {
				continue
			}
			var st unix.Stat_t
			if err := unix.Stat(dir+e.Name(), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 {
				continue
			}
			id := driver.UnnamedFile{Device: st.Dev, Inode: st.Ino}
			if seen[id] {
				continue
			}
			seen[id] = true
			files = append(files, driver.UnnamedFile{Dir: b.spec.Workspace, Device: id.Device, Inode: id.Inode, Bytes: st.Blocks * 512})
		}
	}
	return files, nil
}
