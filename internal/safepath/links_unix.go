//go:build unix

package safepath

import (
	"errors"
	"os"
)

// CheckLinks checks a guarantee of the kernel on which this package relies:
// O_NOFOLLOW does not open a directory through a link. Not all kernels in user
// space give it: gVisor of 2026 follows such a link. No other process may write
// to d. The error wraps [ErrFollowsLinks] if links are followed.
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
		return nil // the expected result
	}
	return errors.Join(ErrFollowsLinks, f.Close())
}
