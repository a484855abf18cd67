package sandbox

import (
	"crypto/rand"
	"strings"
)

// Prefixes of the identifiers that Glovebox hands out. The 26 characters after
// the prefix are lower-case base32. They carry 128 random bits, or 120 if the
// first two are a [Shard], so an identifier cannot be guessed.
const (
	IDPrefix    = "sbx_"
	RunIDPrefix = "run_"
)

const (
	hostPrefix = "sbx" // of a sandbox identifier in a host name
	idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"
	idLength   = 26
)

// NewID returns a fresh sandbox identifier.
func NewID() string { return Shard{}.NewID() }

// NewRunID returns a fresh run identifier.
func NewRunID() string { return Shard{}.NewRunID() }

// ValidID reports whether s has the form of a sandbox identifier.
func ValidID(s string) bool { return validID(s, IDPrefix) }

// HostID returns a sandbox identifier in the form of host names and of E2B's
// protocol: without the underscore. OpenSSL matches a wildcard certificate only
// with labels of letters, digits and hyphens. Any other text is returned
// unchanged.
func HostID(id string) string {
	if !ValidID(id) {
		return id
	}
	return hostPrefix + id[len(IDPrefix):]
}

// CanonicalID returns the sandbox identifier for a text that is one in either
// form, the usual one or that of [HostID]. Any other text is returned unchanged.
func CanonicalID(text string) string {
	if rest, ok := strings.CutPrefix(text, hostPrefix); ok && ValidID(IDPrefix+rest) {
		return IDPrefix + rest
	}
	return text
}

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
