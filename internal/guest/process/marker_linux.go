package process

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// MarkerName is the variable that marks the descendants of a process. A program
// can drop its marker, but cannot forge another process's.
const MarkerName = "GLOVEBOX_PROCESS"

// markers makes and checks markers: a process number and a keyed hash of it.
type markers struct{ key [32]byte }

func newMarkers() (*markers, error) {
	m := new(markers)
	_, err := rand.Read(m.key[:])
	return m, err
}

func (m *markers) of(id uint64) string {
	text := strconv.FormatUint(id, 10)
	h := hmac.New(sha256.New, m.key[:])
	h.Write([]byte(text))
	return text + "." + hex.EncodeToString(h.Sum(nil)[:12])
}

// id returns the number in a genuine marker.
func (m *markers) id(marker string) (uint64, bool) {
	text, _, _ := strings.Cut(marker, ".")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !hmac.Equal([]byte(m.of(id)), []byte(marker)) {
		return 0, false
	}
	return id, true
}
