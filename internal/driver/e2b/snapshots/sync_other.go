//go:build !unix

package snapshots

// syncDir does nothing: this platform cannot sync a directory.
func syncDir(string) error { return nil }
