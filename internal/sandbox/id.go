package sandbox

import (
	"crypto/rand"
	"strings"
)

// Prefixes of the identifiers that Glovebox hands out. The 26 characters after
// the prefix are lower-case base32 and carry 128 random bits, so an identifier
// cannot be guessed.
const (
	IDPrefix    = "sbx_"
	RunIDPrefix = "run_"
)

const (
	idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"
	idLength   = 26
)

// NewID returns a fresh sandbox identifier.
func NewID() string { return IDPrefix + randomText() }

// NewRunID returns a fresh run identifier.
func NewRunID() string { return RunIDPrefix + randomText() }

// ValidID reports whether s has the form of a sandbox identifier.
func ValidID(s string) bool { return validID(s, IDPrefix) }

// ValidRunID reports whether s has the form of a run identifier.
func ValidRunID(s string) bool { return validID(s, RunIDPrefix) }

func validID(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != idLength {
		return false
	}
	return strings.Trim(rest, idAlphabet) == ""
}

// randomText relies on rand.Text, which returns 26 upper-case base32
// characters with at least 128 bits of randomness.
func randomText() string { return strings.ToLower(rand.Text()) }
