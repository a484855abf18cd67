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
// of the specification that is on the host. For the workspace it uses the given
// tree, if there is one. The caller closes the files.
func (s *supervisor) openMounts(b *box, spec *specs.Spec, image *message.ImageRoot, workspace *rootfs.Tree) (files []*os.File, err error) {
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
	for i := range spec.Mounts {
		if !specutils.HasMountConfig(spec.Mounts[i]) {
			continue
		}
		var mount *rootfs.Tree
		switch to := spec.Mounts[i].Destination; {
		case b.record.FirstUser != 0 && to == sandbox.WorkDir:
			mount, err = workspace, workspace.AddOptions(&spec.Mounts[i])
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
