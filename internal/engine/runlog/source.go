package runlog

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fetch reads up to n bytes of a stream at offset, and returns them with the
// next offset. For an offset in the gap, it returns a text that stands for the
// rest of the gap.
func (f Files) fetch(stream int, x Extent, offset, n int64) ([]byte, int64, error) {
	if offset >= x.GapFrom && offset < x.GapTo {
		return []byte(sandbox.NotKept(x.GapTo - offset)), x.GapTo, nil
	}
	data, err := f.Read(stream, x, offset, min(n, readChunk))
	return data, offset + int64(len(data)), err
}

// readChunk is the most, in bytes, that a reader gets at once.
const readChunk = 256 << 10

// A Source is a log that may still grow, in this process or in another one.
type Source struct {
	Files Files
	// Extents returns the extents of the streams at present.
	Extents func() ([Streams]Extent, error)
}

// retry runs f, and runs it once more if a file was missing. The log of a run in
// progress may drop files between listing and reading them.
func retry[T any](f func() (T, error)) (T, error) {
	v, err := f()
	if errors.Is(err, fs.ErrNotExist) {
		return f()
	}
	return v, err
}

// Excerpts returns the output so far, shortened to budget bytes. The streams
// share the budget.
func (s Source) Excerpts(budget int) (sandbox.Output, error) {
	return retry(func() (sandbox.Output, error) { return s.excerpts(budget) })
}

func (s Source) excerpts(budget int) (out sandbox.Output, err error) {
	xs, err := s.Extents()
	if err != nil {
		return out, err
	}
	take := func(stream, n int) (text string, from, omitted int64, err error) {
		x := xs[stream]
		read := func(offset, n int64) ([]byte, error) { return s.Files.Read(stream, x, offset, n) }
		return excerpt.Stream{Read: read, Total: x.Total, GapFrom: x.GapFrom, GapTo: x.GapTo}.Shorten(n)
	}
	out.StdoutBytes, out.StderrBytes = xs[Stdout].Total, xs[Stderr].Total
	// Each stream gets half of the budget, and the part of the other half that
	// is left.
	half := budget / 2
	if out.Stderr, out.StderrFrom, out.Omitted.StderrBytes, err = take(Stderr, half); err != nil {
		return out, err
	}
	if out.Stdout, out.StdoutFrom, out.Omitted.StdoutBytes, err = take(Stdout, budget-len(out.Stderr)); err != nil {
		return out, err
	}
	if out.Omitted.StderrBytes > 0 && len(out.Stdout) < budget-half {
		out.Stderr, out.StderrFrom, out.Omitted.StderrBytes, err = take(Stderr, budget-len(out.Stdout))
	}
	return out, err
}

// ReadAt returns up to n bytes of a stream from offset on, and the length of the
// stream so far.
func (s Source) ReadAt(stream int, offset, n int64) (data []byte, total int64, err error) {
	data, err = retry(func() ([]byte, error) {
		xs, err := s.Extents()
		if err != nil {
			return nil, err
		}
		total = xs[stream].Total
		return s.Files.Read(stream, xs[stream], offset, n)
	})
	return data, total, err
}

// Deliver calls f with the data of the files after the offsets at, and advances
// these.
func (s Source) Deliver(at *[Streams]int64, f func(sandbox.StreamName, []byte) error) error {
	for stream := range Streams {
		for {
			type piece struct {
				data []byte
				next int64
			}
			got, err := retry(func() (piece, error) {
				xs, err := s.Extents()
				if err != nil {
					return piece{}, err
				}
				data, next, err := s.Files.fetch(stream, xs[stream], at[stream], readChunk)
				return piece{data, next}, err
			})
			if err != nil {
				return err
			}
			if got.next == at[stream] {
				break
			}
			at[stream] = got.next
			if err := f(StreamName(stream), got.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tail returns the last n bytes of each stream, one after the other. It leaves
// out a stream whose end was dropped.
func (f Files) Tail(xs [Streams]Extent, n int64) string {
	var b strings.Builder
	for i, x := range xs {
		n := min(x.Total, n)
		text, err := f.Read(i, x, x.Total-n, n)
		if err != nil {
			continue // it was dropped because of the log's bound
		}
		b.Write(text)
	}
	return b.String()
}
