package state

import (
	"bytes"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// seal returns the manifest that is on the disk of an encrypted state.
func (m *Manifest) seal(key sealed.Key) (*Manifest, error) {
	data, err := m.encode()
	if err != nil {
		return nil, err
	}
	id, err := key.ID()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := sealed.NewWriter(&out, key, m.Box, manifestName)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	return &Manifest{Format: m.Format, Reads: m.Reads, Box: m.Box, Saved: m.Saved, Key: m.Key, Sealed: out.Bytes(), KeyID: id, Size: m.Bytes()}, nil
}

// open returns the whole manifest of a state, which is m itself if the state is not
// encrypted.
func (m *Manifest) open(key sealed.Key) (*Manifest, error) {
	const hint = "set saved.key to the file of the key with which it was saved"
	if m.Sealed == nil {
		return m, nil
	}
	if key == nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is encrypted, and this server has no key"), hint)
	}
	if id, err := key.ID(); err != nil {
		return nil, err
	} else if id != m.KeyID {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is encrypted with another key"), hint)
	}
	r, err := sealed.NewReader(bytes.NewReader(m.Sealed), key, m.Box, manifestName)
	if err != nil {
		return nil, damaged("its manifest: %w", err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, damaged("its manifest: %w", err)
	}
	whole, err := decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if whole.Sealed != nil || whole.Box != m.Box || whole.Key != m.Key || whole.ID == "" {
		return nil, damaged("its manifest was changed")
	}
	return whole, nil
}
