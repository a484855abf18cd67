package process

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// maxDescriptors bounds the open files of a process that are looked at.
const maxDescriptors = 4096

// listening returns the ports on which the tree of a run listens.
func (s *Set) listening(_ *http.Request, in *guestapi.ListeningRequest) (*guestapi.ListeningResponse, error) {
	p, err := s.table.find(in.Process)
	if err != nil {
		return nil, err
	}
	out := &guestapi.ListeningResponse{Ports: []int{}}
	sockets := procfs.Listening()
	if len(sockets) == 0 {
		return out, nil
	}
	set, err := living(func(all map[int]procfs.Process) []procfs.Process { return s.trees.members(p.Process, all) })
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, m := range set {
		s.trees.look(m.PID, func() error { return findSockets(m.PID, sockets, found) })
	}
	for port := range found {
		out.Ports = append(out.Ports, port)
	}
	slices.Sort(out.Ports)
	out.Ports = out.Ports[:min(len(out.Ports), guestapi.MaxListening)]
	return out, nil
}

// findSockets adds to found the ports of those sockets that a process has open.
func findSockets(pid int, sockets map[uint64]int, found map[int]bool) error {
	path := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxDescriptors)
	if err != nil {
		return err
	}
	for _, name := range names {
		to, err := os.Readlink(path + "/" + name)
		if errors.Is(err, os.ErrPermission) {
			return err // root of a container may list the files of a user, and not read them
		}
		if err != nil {
			continue // it was closed
		}
		text, ok := strings.CutPrefix(to, "socket:[")
		inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
		if port := sockets[inode]; ok && err == nil && port != 0 {
			found[port] = true
		}
	}
	return nil
}
