//go:build unix

package safepath

import (
	"errors"
	"os"
)

// CheckLinks reports whether the kernel keeps what this package relies on: that a
// directory which is opened without following links is not opened through one.
// Kernels in user space do not all keep it: gVisor of 2026 follows such a link.
// The directory is one that nobody else writes to. The error wraps
// [ErrFollowsLinks] if links are followed.
func (d *Dir) CheckLinks() error { return d.checkLinks(openAt) }

func (d *Dir) checkLinks(open func(dir *os.File, name string) (*os.File, error)) (err error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	target, link := tempName(), tempName()
	if err := d.root.Mkdir(target, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.root.Remove(target)) }()
	if err := d.root.Symlink(target, link); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.root.Remove(link)) }()
	f, err := open(dir, link)
	if err != nil {
		return nil // as it has to be
	}
	return errors.Join(ErrFollowsLinks, f.Close())
}
