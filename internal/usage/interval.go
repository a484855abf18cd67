package usage

import (
	"math/bits"
	"time"
)

// Hour and Day are the spans that amounts are summed over. They begin at full hours
// and days of UTC.
const (
	Hour = time.Hour
	Day  = 24 * time.Hour
)

// MaxParts bounds the parts of one interval: a year of hours. An older beginning
// counts in the first of them.
const MaxParts = 366 * 24

// A Part is the part of an interval that is in one hour.
type Part struct {
	Hour time.Time
	Amounts
}

// Kept returns the part of an amount that exists for a time, such as memory: size is
// in KiB. The result for two adjacent intervals is that for both together, if they
// are in one hour.
func kept(size int64, from, to time.Time) int64 {
	begin := from.Truncate(Hour)
	since := func(t time.Time) int64 { return share(size, t.Sub(begin).Milliseconds(), 1000) }
	return since(to) - since(from)
}

// share returns n*num/den, rounded down. den must be positive; n and num must not be
// negative. A result that is too large is the largest number.
func share(n, num, den int64) int64 {
	const most = 1<<63 - 1
	hi, lo := bits.Mul64(uint64(n), uint64(num))
	if hi >= uint64(den) {
		return most
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, most))
}

// Divide divides amounts that were used evenly from one time to another into hours.
// The sum of the parts is a. If the interval is empty or its end is before its
// beginning, a belongs to the hour of the end.
func Divide(from, to time.Time, a Amounts) []Part {
	cuts := cut(from, to)
	total := cuts[len(cuts)-1].Sub(cuts[0]).Milliseconds()
	parts := make([]Part, len(cuts)-1)
	var done Amounts
	for i := range parts {
		parts[i].Hour = cuts[i].Truncate(Hour)
		elapsed := cuts[i+1].Sub(cuts[0]).Milliseconds()
		if i == len(parts)-1 {
			elapsed, total = 1, 1 // all of it, also if the interval is empty
		}
		all, before, mine := a.Values(), done.Values(), parts[i].Values()
		for j := range all {
			sum := share(max(*all[j], 0), elapsed, total)
			*mine[j] = sum - *before[j]
			*before[j] = sum
		}
	}
	return parts
}

// Exist returns the parts of an interval in which a sandbox with that memory limit
// existed.
func Exist(from, to time.Time, memoryKiB int64) []Part {
	return each(from, to, func(p *Part, from, to time.Time) {
		p.SandboxMillis = to.Sub(from).Milliseconds()
		p.MemoryKiBSeconds = kept(memoryKiB, from, to)
	})
}

// Store returns the parts of an interval in which a workspace of that size existed.
func Store(from, to time.Time, sizeKiB int64) []Part {
	return each(from, to, func(p *Part, from, to time.Time) { p.StorageKiBSeconds = kept(sizeKiB, from, to) })
}

func each(from, to time.Time, set func(p *Part, from, to time.Time)) []Part {
	if !from.Before(to) {
		return nil
	}
	cuts := cut(from, to)
	parts := make([]Part, len(cuts)-1)
	for i := range parts {
		parts[i].Hour = cuts[i].Truncate(Hour)
		set(&parts[i], cuts[i], cuts[i+1])
	}
	return parts
}

// cut returns the times at which an interval is cut, from its beginning to its end:
// at least two.
func cut(from, to time.Time) []time.Time {
	from, to = from.UTC().Truncate(time.Millisecond), to.UTC().Truncate(time.Millisecond)
	if !from.Before(to) {
		return []time.Time{to, to}
	}
	if first := to.Truncate(Hour).Add(-(MaxParts - 1) * Hour); from.Before(first) {
		from = first
	}
	cuts := []time.Time{from}
	for next := from.Truncate(Hour).Add(Hour); next.Before(to); next = next.Add(Hour) {
		cuts = append(cuts, next)
	}
	return append(cuts, to)
}

// Merge returns the parts of two lists, with those of the same hour added, in the
// order of their hours.
func Merge(a, b []Part) []Part {
	var all []Part
	for len(a) > 0 || len(b) > 0 {
		var p Part
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Hour.Before(b[0].Hour):
			p, a = a[0], a[1:]
		default:
			p, b = b[0], b[1:]
		}
		if n := len(all); n > 0 && all[n-1].Hour.Equal(p.Hour) {
			all[n-1].Amounts = all[n-1].Plus(p.Amounts)
		} else {
			all = append(all, p)
		}
	}
	return all
}
