package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Access makes and checks access tokens for single sandboxes. Tokens are not
// stored: each is computed from the sandbox's id and a secret key. So a token is
// valid as long as the sandbox lives, on every server with the same key. The
// methods are safe for concurrent use.
type Access struct{ key [32]byte }

// NewAccess returns an Access with the key in file. If the file does not exist,
// it creates the file with a new key, readable only by its owner. Several
// processes may call it at the same time. Errors wrap [sandbox.Unavailable].
func NewAccess(file string) (*Access, error) {
	a := &Access{}
	rand.Read(a.key[:])
	text, err := atomicfile.Once(file, a.key[:], 0o600)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "make key: %w", err)
	}
	if len(text) != len(a.key) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "read %s: the file is not a key", file),
			"remove the file; the tokens of existing sandboxes then become invalid")
	}
	copy(a.key[:], text)
	return a, nil
}

// Token returns the access token of a sandbox, in hexadecimal.
func (a *Access) Token(id string) string { return a.sum("sandbox " + id) }

// TrafficToken returns the token for the ports of a sandbox, in hexadecimal. It
// says nothing about the access token.
func (a *Access) TrafficToken(id string) string { return a.sum("traffic " + id) }

func (a *Access) sum(text string) string {
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// Check reports whether token is the sandbox's access token. It compares in
// constant time.
func (a *Access) Check(id, token string) bool {
	return hmac.Equal([]byte(a.Token(id)), []byte(token))
}

// CheckTraffic reports whether token is the sandbox's traffic token. It compares
// in constant time.
func (a *Access) CheckTraffic(id, token string) bool {
	return hmac.Equal([]byte(a.TrafficToken(id)), []byte(token))
}
