package sandbox

import (
	"fmt"
	"strconv"
)

// Shards is the number of shards: a shard is a number from 0 to Shards-1.
const Shards = 1 << 10

// A Shard is the number of one of several servers behind one address. A proxy
// finds the server of an identifier by the shard in it, also in requests without
// a credential. The zero value is no shard: its identifiers are wholly random.
type Shard struct {
	letters string // the first two characters of identifiers
	digits  string // the first three digits of hexadecimal identifiers
}

// NewShard returns the shard with that number. The error is of kind Invalid if
// the number is not between 0 and Shards-1.
func NewShard(n int) (Shard, error) {
	if n < 0 || n >= Shards {
		return Shard{}, Errorf(Invalid, "%d is not a shard, which is a number from 0 to %d", n, Shards-1)
	}
	return Shard{
		letters: string([]byte{idAlphabet[n/len(idAlphabet)], idAlphabet[n%len(idAlphabet)]}),
		digits:  fmt.Sprintf("%03x", n),
	}, nil
}

// ParseShard returns the shard of a decimal number. An empty text is no shard.
// The error is of kind Invalid.
func ParseShard(text string) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return Shard{}, Errorf(Invalid, "%.20q is not a shard, which is a number from 0 to %d", text, Shards-1)
	}
	return NewShard(n)
}

// NewID returns a fresh sandbox identifier of the shard.
func (s Shard) NewID() string { return IDPrefix + s.randomText() }

// NewRunID returns a fresh run identifier of the shard.
func (s Shard) NewRunID() string { return RunIDPrefix + s.randomText() }

// Hex returns a random hexadecimal text with its first digits replaced by those of
// the shard. For no shard it returns the text.
func (s Shard) Hex(random string) string { return s.digits + random[len(s.digits):] }

// Mark returns a secret text in which a proxy finds the shard: the first two
// characters of the shard's identifiers, a dot, and the text. For no shard it
// returns the text.
func (s Shard) Mark(text string) string {
	if s.letters == "" {
		return text
	}
	return s.letters + "." + text
}

func (s Shard) randomText() string { return s.letters + randomText()[len(s.letters):] }
