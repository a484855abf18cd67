// Package safepath opens host paths that others named: files of a directory
// that a sandbox, or whoever sends an archive, fills as they like, while it is
// being used. Nothing else in Glovebox opens such paths.
//
// A [Dir] is a directory that is held open. Whatever is named below it stays
// below it: "..", absolute names and links that lead out are refused, also when
// somebody changes what a name means in the moment it is used, because each
// step is taken from a directory that is already open (os.Root). Links that
// stay inside are followed to read, and never to write. What is not a regular
// file is never opened for its content, so no FIFO blocks and no device is
// touched.
//
// New files are made where nobody else can see them and then put in their
// place in one step, see [Dir.Create]. They belong to the owner of the
// directory. Bits that make a program run as its owner are never set.
//
// Any package may import it. It knows nothing of sandboxes, and its errors have
// no kind: they wrap [ErrName], [ErrLimit], [ErrType] or what the system said.
// A Dir may be used by many goroutines at once, until it is closed.
package safepath

import "errors"

var (
	// ErrName is wrapped by the error for a name that is refused before
	// anything is looked at.
	ErrName = errors.New("not a name of a file")
	// ErrLimit is wrapped by the error for more than a limit allows.
	ErrLimit = errors.New("too much")
	// ErrType is wrapped by the error for something that is there, but is not
	// what is needed: a directory in place of a file, say.
	ErrType = errors.New("of the wrong type")
)
