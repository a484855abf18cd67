// Package filelock locks files between processes, and between the owners of a file
// in one process. [Lock] needs no clean-up: closing the file frees its lock, and so
// does the end of the process. Any package may import it.
package filelock

import "errors"

// ErrLocked says that another owner has the lock.
var ErrLocked = errors.New("the file is locked")
