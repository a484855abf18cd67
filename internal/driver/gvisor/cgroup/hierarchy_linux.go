package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// parentGroup is the name of the group that contains the groups of boxes.
const parentGroup = "glovebox"

// Hierarchies are the control groups that this process may make. gVisor's own code
// for groups moves its process into a box's group and out again while it starts the
// box. A process that makes several boxes at once cannot use that.
type Hierarchies struct {
	v2   bool
	base map[string]string // controller to the directory below which to make groups
}

// Find returns the control groups that this process can make, or nil. root means
// that root of the host started the server.
func Find(root bool) *Hierarchies {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	if c := findV1(string(mounts), string(own)); c != nil {
		return c
	}
	return findV2(string(mounts), string(own), root)
}

// serverGroup is the group below the server's own group into which makeRoom moves
// the server.
const serverGroup = "glovebox-server"

// mount is a mounted hierarchy.
type mount struct{ root, dir, options string }

// mountsOf returns the mounts of a file system type in mountinfo.
func mountsOf(mountinfo, fstype string) []mount {
	var found []mount
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 5 && len(r) >= 3 && r[0] == fstype {
			found = append(found, mount{root: l[3], dir: l[4], options: r[2]})
		}
	}
	return found
}

// ownGroup returns this process's group in the hierarchy of a controller ("" is
// version 2's), from the text of /proc/self/cgroup.
func ownGroup(own, controller string) string {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			if c == controller {
				return parts[2]
			}
		}
	}
	return "/"
}

// below returns a group's directory in a mount of its hierarchy.
func (m mount) below(group string) string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "."
	}
	return filepath.Join(m.dir, rel)
}

func findV1(mountinfo, own string) *Hierarchies {
	c := &Hierarchies{base: map[string]string{}}
	for _, m := range mountsOf(mountinfo, "cgroup") {
		for option := range strings.SplitSeq(m.options, ",") {
			switch option {
			case CPU, Memory, PIDs, CPUAcct:
				if dir := m.below(ownGroup(own, option)); unix.Access(dir, unix.W_OK) == nil {
					c.base[option] = dir
				}
			}
		}
	}
	if c.base[Memory] == "" && c.base[CPU] == "" {
		return nil
	}
	return c
}

// findV2 uses the root of the hierarchy if root started the server, as
// container engines do. For other users it uses their own group, if it was
// delegated to them.
func findV2(mountinfo, own string, root bool) *Hierarchies {
	mounts := mountsOf(mountinfo, "cgroup2")
	if len(mounts) == 0 {
		return nil
	}
	dir := mounts[0].dir
	if !root {
		// An earlier supervisor of this server may have called makeRoom.
		group := strings.TrimSuffix(ownGroup(own, ""), "/"+serverGroup)
		dir = mounts[0].below(group)
	}
	if unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil {
		return nil
	}
	controllers := []string{CPU, Memory}
	if there, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")); err == nil && slices.Contains(strings.Fields(string(there)), PIDs) {
		controllers = append(controllers, PIDs)
	}
	if err := enableControllers(dir, controllers); err != nil {
		// A group that contains processes cannot enable controllers for its
		// children. In a delegated group, these processes are the server and this
		// process.
		if root || !errors.Is(err, unix.EBUSY) || makeRoom(dir) != nil || enableControllers(dir, controllers) != nil {
			return nil
		}
	}
	c := &Hierarchies{v2: true, base: map[string]string{}}
	for _, controller := range controllers {
		c.base[controller] = dir
	}
	return c
}

func enableControllers(dir string, controllers []string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+strings.Join(controllers, " +")), 0)
}

// makeRoom moves this process and its parent, the server, out of dir, into a group
// below it.
func makeRoom(dir string) error {
	leaf := filepath.Join(dir, serverGroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range []int{os.Getppid(), os.Getpid()} {
		if pid <= 1 {
			continue // the server has ended
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether the groups have that controller.
func (c *Hierarchies) Has(controller string) bool {
	return c != nil && c.base[controller] != ""
}

// Of returns a box's group, which may not exist.
func (c *Hierarchies) Of(id string) *Group {
	g := &Group{V2: c.v2, Dirs: map[string]string{}}
	for controller, base := range c.base {
		g.Dirs[controller] = filepath.Join(base, parentGroup, id)
	}
	return g
}

// Make makes a box's group with its limits. The group contains no processes yet.
func (c *Hierarchies) Make(id string, l Limits) (g *Group, err error) {
	// The removal of another box's group may have just removed the parent.
	for range 5 {
		if g, err = c.tryMake(id, l); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return g, err
}

func (c *Hierarchies) tryMake(id string, l Limits) (*Group, error) {
	g := c.Of(id)
	for controller, dir := range g.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make control group: %w", err), g.Remove())
		}
		if c.v2 {
			controllers := slices.Sorted(maps.Keys(c.base))
			if err := enableControllers(filepath.Join(c.base[controller], parentGroup), controllers); err != nil {
				return nil, errors.Join(fmt.Errorf("enable controllers: %w", err), g.Remove())
			}
		}
	}
	for _, s := range g.settings(l) {
		err := os.WriteFile(filepath.Join(g.Dirs[s.controller], s.file), []byte(s.value), 0)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return nil, errors.Join(fmt.Errorf("limit %s: %w", s.controller, err), g.Remove())
		}
	}
	return g, nil
}

// Writable returns the version of control groups that this user may write. It
// only reads, whereas a supervisor that uses groups also prepares its own group.
func Writable() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	if c := findV1(string(mounts), string(own)); c.Has(CPU) && c.Has(Memory) {
		return "version 1"
	}
	for _, m := range mountsOf(string(mounts), "cgroup2") {
		dir := m.dir
		if os.Geteuid() != 0 {
			dir = m.below(ownGroup(string(own), ""))
		}
		has, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		names := strings.Fields(string(has))
		if slices.Contains(names, CPU) && slices.Contains(names, Memory) &&
			unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) == nil {
			return "version 2"
		}
	}
	return ""
}
