package supervisor

import (
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// openMounts opens the files that a box sees: its root file system, then each mount
// of the specification that is on the host. If the box has users of its own, trees
// are those of its workspace and its mounts, in that order. The caller closes the
// files.
func (s *supervisor) openMounts(b *box, spec *specs.Spec, image *message.ImageRoot, trees []*rootfs.Tree) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			message.CloseAll(files)
		}
	}()
	add := func(file *os.File, err error) error {
		if err == nil {
			files = append(files, file)
		}
		return err
	}
	if image == nil {
		makeRoot := s.hostRoot
		if b.record.FirstUser != 0 {
			makeRoot = s.userRoot
		}
		root, err := makeRoot()
		if err != nil {
			return nil, err
		}
		if err := add(root.HandOver()); err != nil {
			return nil, err
		}
	} else {
		// The sentry reads the image file directly. The mount is read-only, because
		// a process that has the file open could otherwise change its mode.
		root, err := rootfs.Open(image.File, 0, rootfs.ReadOnly)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		if err := add(root.Reopen()); err != nil {
			return nil, err
		}
	}
	ours := map[string]*rootfs.Tree{}
	if b.record.FirstUser != 0 && b.record.Spec.Workspace != "" {
		if want := 1 + len(b.record.Spec.Mounts); len(trees) != want {
			return nil, sandbox.Errorf(sandbox.Internal, "%d trees came for %d directories", len(trees), want)
		}
		ours[sandbox.WorkDir] = trees[0]
		for i, m := range b.record.Spec.Mounts {
			ours[m.Path] = trees[i+1]
		}
	}
	for i := range spec.Mounts {
		if !specutils.HasMountConfig(spec.Mounts[i]) {
			continue
		}
		var mount *rootfs.Tree
		switch to := spec.Mounts[i].Destination; {
		case ours[to] != nil:
			mount, err = ours[to], ours[to].AddOptions(&spec.Mounts[i])
		case to == rootfs.GuestDir:
			makeGuest := s.hostGuest
			if b.record.FirstUser != 0 {
				makeGuest = s.userGuest
			}
			if mount, err = makeGuest(); err == nil {
				err = mount.AddOptions(&spec.Mounts[i])
			}
		default:
			if mount, err = rootfs.OpenMount(&spec.Mounts[i]); err == nil {
				defer mount.Close()
			}
		}
		if err != nil {
			return files, err
		}
		if err := add(mount.HandOver()); err != nil {
			return files, err
		}
	}
	return files, nil
}
