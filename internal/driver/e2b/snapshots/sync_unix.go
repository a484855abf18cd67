//go:build unix

package snapshots

import (
	"errors"
	"os"
)

// syncDir puts the names of a directory's files on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
