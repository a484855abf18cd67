//go:build !unix

package e2b

import "os"

// lock does nothing here: whether another process lives cannot be told, and so
// it is taken to, until its sandboxes end for their timeout.
func lock(*os.File) (bool, error) { return false, nil }
