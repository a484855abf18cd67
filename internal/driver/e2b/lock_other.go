//go:build !unix

package e2b

import "os"

// lock does nothing: this platform cannot detect whether another process is
// alive. It counts as alive, and its sandboxes end by their timeout.
func lock(*os.File) (bool, error) { return false, nil }
