package release

import (
	"bytes"
	"crypto/rand"

	"aead.dev/minisign"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ReadKey parses a private key in the format of minisign -G. If password is
// empty, the key must not be encrypted. Errors are of kind Invalid.
func ReadKey(text []byte, password string) (minisign.PrivateKey, error) {
	text = bytes.TrimSpace(text)
	if minisign.IsEncrypted(text) {
		key, err := minisign.DecryptKey(password, text)
		if err != nil {
			return key, sandbox.Errorf(sandbox.Invalid, "decrypt the release key: %w", err)
		}
		return key, nil
	}
	var key minisign.PrivateKey
	if err := key.UnmarshalText(text); err != nil {
		return key, sandbox.Errorf(sandbox.Invalid, "read the release key: %w", err)
	}
	return key, nil
}

// PublicKey returns the public key as the line that programs and installers
// contain.
func PublicKey(key minisign.PrivateKey) (string, error) {
	public, ok := key.Public().(minisign.PublicKey)
	if !ok {
		return "", sandbox.Errorf(sandbox.Internal, "the release key has no public part")
	}
	text, err := public.MarshalText()
	if err != nil {
		return "", sandbox.Errorf(sandbox.Internal, "the release key: %w", err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.TrimSpace(lines[len(lines)-1])), nil
}

// NewKey returns a new private key without a password, for test releases.
func NewKey() ([]byte, error) {
	_, key, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "make a key: %w", err)
	}
	text, err := key.MarshalText()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "make a key: %w", err)
	}
	return append(text, '\n'), nil
}
