package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Access makes and checks tokens that give access to one sandbox each, and
// to nothing else. They are not kept: each follows from the sandbox and a
// secret key, and so is good as long as the sandbox lives, on every server that
// has the key. Its methods are safe for concurrent use.
type Access struct{ key [32]byte }

// NewAccess returns an Access whose key is in a file, which is made, readable
// for its owner only, if it is not there. Several processes may do so at once.
func NewAccess(file string) (*Access, error) {
	a := &Access{}
	rand.Read(a.key[:])
	text, err := atomicfile.Once(file, a.key[:], 0o600)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "make key: %w", err)
	}
	if len(text) != len(a.key) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "read %s: it is not a key", file),
			"remove it; the tokens of sandboxes that live are void then")
	}
	copy(a.key[:], text)
	return a, nil
}

// Token returns the token of a sandbox.
func (a *Access) Token(id string) string {
	mac := hmac.New(sha256.New, a.key[:])
	fmt.Fprintf(mac, "sandbox %s", id)
	return hex.EncodeToString(mac.Sum(nil))
}

// Check reports whether token is that of the sandbox.
func (a *Access) Check(id, token string) bool {
	return hmac.Equal([]byte(a.Token(id)), []byte(token))
}
