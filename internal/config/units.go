package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bytes is a size, written as 512MiB, 1.5GB, 64k or a bare number of bytes. The
// units KiB, MiB, GiB, TiB and the single letters are powers of 1024, as in
// Docker; KB, MB, GB, TB are powers of 1000. It also implements a command line
// flag's value.
type Bytes int64

var byteUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// UnmarshalText parses a size. The error wraps [sandbox.Invalid].
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	cut := strings.LastIndexAny(s, "0123456789.") + 1
	unit, ok := byteUnits[strings.ToLower(strings.TrimSpace(s[cut:]))]
	n, err := strconv.ParseFloat(s[:cut], 64)
	if err != nil || !ok || n < 0 || n*unit > math.MaxInt64/2 {
		return sandbox.Errorf(sandbox.Invalid, "%q is not a size; write it like 512MiB or 2GB", s)
	}
	*b = Bytes(n * unit)
	return nil
}

// String writes b exactly, in the largest unit that divides it.
func (b Bytes) String() string {
	n, unit := int64(b), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.FormatInt(n, 10) + unit
}

// MarshalText returns a text that UnmarshalText can parse.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Set is UnmarshalText, for flags.
func (b *Bytes) Set(s string) error { return b.UnmarshalText([]byte(s)) }

// Type returns the name of the value in a flag's help.
func (b *Bytes) Type() string { return "size" }

// Duration is a time span, written as 30s, 10m, 24h or 1h30m; a bare number is
// in seconds. It also implements a command line flag's value.
type Duration time.Duration

// UnmarshalText parses a time span. It refuses negative values. The error wraps
// [sandbox.Invalid].
func (d *Duration) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	v, err := time.ParseDuration(s)
	if err != nil {
		n, nerr := strconv.ParseFloat(s, 64)
		if nerr != nil || math.IsNaN(n) || math.Abs(n) > (100*365*24*time.Hour).Seconds() {
			return sandbox.Errorf(sandbox.Invalid, "%q is not a time span; write it like 30s, 10m or 24h", s)
		}
		v = time.Duration(n * float64(time.Second))
	}
	if v < 0 {
		return sandbox.Errorf(sandbox.Invalid, "%q is a negative time span", s)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns a text that UnmarshalText can parse.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Set is UnmarshalText, for flags.
func (d *Duration) Set(s string) error { return d.UnmarshalText([]byte(s)) }

// Type returns the name of the value in a flag's help.
func (d *Duration) Type() string { return "duration" }

// Lifetime is a Duration that may also be [sandbox.Forever], written as none.
type Lifetime time.Duration

// UnmarshalText parses a time span or none. The error wraps [sandbox.Invalid].
func (l *Lifetime) UnmarshalText(text []byte) error {
	if strings.TrimSpace(string(text)) == "none" {
		*l = Lifetime(sandbox.Forever)
		return nil
	}
	var d Duration
	if err := d.UnmarshalText(text); err != nil {
		return err
	}
	if time.Duration(d) >= sandbox.Forever {
		return sandbox.Errorf(sandbox.Invalid, "%q is longer than 100 years; write none for no limit", text)
	}
	*l = Lifetime(d)
	return nil
}

func (l Lifetime) String() string { return sandbox.FormatDuration(time.Duration(l)) }

// MarshalText returns a text that UnmarshalText can parse.
func (l Lifetime) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
