package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.UnnamedLister = (*box)(nil)

// UnnamedFiles implements [driver.UnnamedLister]. The supervisor returns the
// process ID of the sentry, and the driver reads the sentry's files. A supervisor
// cannot see the files of another supervisor's sentry, which is in another user
// namespace.
func (b *box) UnnamedFiles(ctx context.Context) ([]driver.UnnamedFile, error) {
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpUnnamed, Ref: b.ref})
	var files []driver.UnnamedFile
	if err == nil && rep.Workspace != "" && rep.Sentry != 0 { // a saved box has no sentry
		files, err = unnamedFiles(ctx, rep.Sentry, append([]string{rep.Workspace}, rep.Mounts...))
	}
	return files, sandbox.Wrap(err, "list files without a name of box", b.ref)
}

// unnamedFiles returns the regular files without a name that a sentry has open in
// the directories dirs of a box. The sentry has a descriptor of each file that a program has open
// or mapped.
//
// The file with the writable layer of the box has no name either, and may be on the
// same file system. The mount distinguishes the files of a directory: it is the
// mount of that directory itself.
func unnamedFiles(ctx context.Context, sentry int, dirs []string) ([]driver.UnnamedFile, error) {
	files, err := readUnnamedFiles(ctx, sentry, dirs)
	if err != nil && hasEnded(sentry) {
		return nil, fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	return files, err
}

func readUnnamedFiles(ctx context.Context, sentry int, dirs []string) ([]driver.UnnamedFile, error) {
	type id struct{ device, inode uint64 }
	roots := map[id]string{}
	for _, dir := range dirs {
		var root syscall.Stat_t
		if err := syscall.Stat(dir, &root); err != nil {
			return nil, fmt.Errorf("find workspace: %w", err)
		}
		roots[id{root.Dev, root.Ino}] = dir
	}
	proc := fmt.Sprintf("/proc/%d/", sentry)
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		return nil, err
	}
	type candidate struct {
		file  driver.UnnamedFile
		mount string
	}
	var candidates []candidate
	mounts := map[string]string{} // directories by the IDs of their mounts
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// Stat follows the descriptor to its file, and opens nothing.
		var st syscall.Stat_t
		if err := syscall.Stat(proc+"fd/"+e.Name(), &st); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // closed meanwhile
			}
			return nil, err
		}
		kind := st.Mode & syscall.S_IFMT
		root, isRoot := roots[id{st.Dev, st.Ino}]
		isRoot = isRoot && kind == syscall.S_IFDIR
		isUnnamed := kind == syscall.S_IFREG && st.Nlink == 0
		if !isRoot && !isUnnamed {
			continue
		}
		mount, err := mountOf(proc + "fdinfo/" + e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if isRoot {
			mounts[mount] = root
		} else {
			file := driver.UnnamedFile{Device: st.Dev, Inode: st.Ino, Bytes: st.Blocks * 512}
			candidates = append(candidates, candidate{file, mount})
		}
	}
	if len(slices.Compact(slices.Sorted(maps.Values(mounts)))) != len(roots) {
		return nil, errors.New("the sentry does not have the workspace open")
	}
	var files []driver.UnnamedFile
	seen := map[id]bool{}
	for _, c := range candidates {
		id, dir := id{c.file.Device, c.file.Inode}, mounts[c.mount]
		if dir != "" && !seen[id] {
			seen[id] = true
			c.file.Dir = dir
			files = append(files, c.file)
		}
	}
	return files, nil
}

// mountOf returns the ID of the mount through which a descriptor was opened; path
// is its file in fdinfo.
func mountOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", fmt.Errorf("%s names no mount", path)
}

// hasEnded reports whether a process has ended, or is about to: it is a zombie, or
// has no memory or no descriptors any more. An ordinary user cannot list the descriptors of
// a process without memory, which is not a zombie yet.
func hasEnded(pid int) bool {
	status, err := process.Status(pid)
	if err != nil || status["State"] == "Z" || status["State"] == "X" || status["VmSize"] == "" {
		return true
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return err == nil && len(entries) == 0
}
