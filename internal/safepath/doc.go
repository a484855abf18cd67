// Package safepath opens host paths with untrusted names. A sandbox, or the sender
// of an archive, may change the files of the directory at any time. No other
// package of Glovebox opens such paths.
//
// A [Dir] is an open directory. A name below it cannot leave it: "..", absolute
// names and links that lead out are refused. Races do not help an attacker,
// because each step starts from an open directory (os.Root). Links that stay
// inside are followed, except at the end of a name that is written; see also
// [Dir.WithoutLinks]. Only regular files are opened for their content. So no FIFO
// blocks, and no device is opened.
//
// New files are written where no other process can see them, and then moved by an
// atomic rename, see [Dir.Create]. They belong to the owner of the directory. The
// set-user-ID and set-group-ID bits are never set.
//
// Any package may import it. It does not know sandboxes, and its errors have no
// kind: they wrap [ErrName], [ErrLimit], [ErrType] or the system's error. A Dir
// is safe for concurrent use until it is closed.
package safepath

import "errors"

var (
	// ErrName is wrapped by the error for a name that is refused before any file
	// is looked up.
	ErrName = errors.New("not a valid file name")
	// ErrLimit is wrapped by the error for an exceeded limit.
	ErrLimit = errors.New("limit exceeded")
	// ErrType is wrapped by the error for a file of the wrong type, such as a
	// directory in place of a file.
	ErrType = errors.New("wrong file type")
)
