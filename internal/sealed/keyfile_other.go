//go:build !unix

package sealed

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// LoadKey is of kind Unsupported here: no driver of this platform encrypts states.
func LoadKey(string, bool) (Key, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "states are encrypted on Linux only")
}
