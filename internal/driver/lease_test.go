package driver

import (
	"testing"
	"time"
)

func TestLeaseAfter(t *testing.T) {
	left := time.Unix(1e9, 0)
	at := func(s int) time.Time { return left.Add(time.Duration(s) * time.Second) }
	for name, c := range map[string]struct {
		lease Lease
		want  time.Time
	}{
		"idle":             {Lease{End: at(100), Idle: 10 * time.Second}, at(10)},
		"busy":             {Lease{End: at(100), Idle: 10 * time.Second, Busy: at(50)}, at(50)},
		"no longer busy":   {Lease{End: at(100), Idle: 10 * time.Second, Busy: at(5)}, at(10)},
		"end before idle":  {Lease{End: at(5), Idle: 10 * time.Second}, at(5)},
		"end while busy":   {Lease{End: at(20), Idle: 10 * time.Second, Busy: at(50)}, at(20)},
		"over before that": {Lease{End: at(-5), Idle: 10 * time.Second}, at(-5)},
		"none":             {Lease{}, time.Time{}},
	} {
		if got := c.lease.After(left); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
