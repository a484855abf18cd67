package snapshots

import (
	"path"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Manifest describes the box of a snapshot.
type Manifest struct {
	Image     string             `json:"image"` // the platform's identifier
	Workspace bool               `json:"workspace"`
	Disk      container.DiskMode `json:"disk"`
}

// manifestOf returns the manifest for a snapshot of a box of the image with an ID.
func manifestOf(rec *container.Record, image string) Manifest {
	return Manifest{Image: image, Workspace: rec.Spec.Workspace != "", Disk: rec.Disk}
}

// CheckFits returns an error of kind Unavailable if a box of a spec and of the image
// with an ID cannot have the files of the snapshot.
func (m Manifest) CheckFits(spec *driver.Spec, image string) error {
	refuse := func(hint, format string, args ...any) error {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot does not fit: "+format, args...), "%s", hint)
	}
	if m.Image != image {
		return refuse("take another snapshot", "its sandbox had the image %.19s, and that image is now %.19s", m.Image, image)
	}
	if m.Workspace != (spec.Workspace != "") {
		return refuse("make a sandbox that has a workspace if the other had one", "its sandbox differs in having a workspace")
	}
	return nil
}

// A change is a difference between the layer of a container and its image.
type change struct {
	path string
	gone bool
}

// packOrder returns the order for the files of the box of a record and a plan. changes
// are the differences of its layer, if that can be written.
func packOrder(p *container.Plan, changes []change) (guestapi.PackOrder, error) {
	var order guestapi.PackOrder
	skip := []string{container.GuestDir, "/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname"}
	for _, s := range slices.Concat(p.Scratch, p.ImageVolumes) {
		if s.Path != container.RunDir {
			order.Trees = append(order.Trees, s.Path)
		}
		skip = append(skip, s.Path)
	}
	for _, m := range p.Mounts {
		skip = append(skip, m.Path)
	}
	for file := range p.Settings {
		skip = append(skip, file)
	}
	for _, c := range changes {
		name := path.Clean("/" + c.path)
		if name == "/" || slices.ContainsFunc(skip, func(s string) bool { return name == s || strings.HasPrefix(name, s+"/") }) {
			continue
		}
		if strings.ContainsRune(name, '\uFFFD') {
			return order, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the name of the file %q is not UTF-8, which the engine cannot list", name), "rename it, or remove it")
		}
		if c.gone {
			order.Gone = append(order.Gone, name)
		} else {
			order.Files = append(order.Files, name)
		}
	}
	slices.Sort(order.Files) // a directory before its contents
	return order, nil
}
