package runlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A run's log consists of files of segmentSize bytes (the last one is shorter)
// in its sandbox's directory. They are named by run, stream and number.
// Removing files drops the middle of a stream, so the names of the remaining
// files show the gap. Another process, or this one after a crash, can therefore
// read a log without an index.
const segmentSize = 1 << 20

// MinSize is the space that a log needs, in bytes, for the head, the tail and
// the segment being written, of two streams.
const MinSize = 8 * segmentSize

// Files names the files of one run.
type Files struct {
	root         *os.Root
	sandbox, run string
}

// FilesOf returns the names of the files of a run. root has a directory for each
// sandbox.
func FilesOf(root *os.Root, sandboxID, runID string) Files { return Files{root, sandboxID, runID} }

// StreamName returns the name of a stream.
func StreamName(s int) sandbox.StreamName {
	if s == Stderr {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

// The streams of a run, as array indexes, and their number.
const (
	Stdout = iota
	Stderr
	Streams
)

func (f Files) name(stream int, segment int64) string {
	return fmt.Sprintf("%s/%s.%s.%06d", f.sandbox, f.run, StreamName(stream), segment)
}

// create makes the file of a new segment.
func (f Files) create(stream int, segment int64) (*os.File, error) {
	return f.open(f.name(stream, segment), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

// open opens a file for writing, and creates its directory if necessary.
func (f Files) open(name string, flags int) (*os.File, error) {
	file, err := f.root.OpenFile(name, flags, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := f.root.Mkdir(f.sandbox, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.root.OpenFile(name, flags, 0o600)
}

// An Extent describes the bytes of one stream: total bytes, without the dropped
// bytes from gapFrom to gapTo.
type Extent struct {
	Total, GapFrom, GapTo int64
}

// Kept returns how many bytes there are.
func (x Extent) Kept() int64 { return x.Total - (x.GapTo - x.GapFrom) }

// Extents works out the extent of each stream from the files.
func (f Files) Extents() ([Streams]Extent, error) {
	var (
		xs    [Streams]Extent
		found [Streams][]int64
	)
	dir, err := f.root.Open(f.sandbox)
	if errors.Is(err, fs.ErrNotExist) {
		return xs, nil
	}
	if err != nil {
		return xs, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return xs, err
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, f.run+".")
		if !ok || rest == resultsSuffix || rest == baselineSuffix {
			continue
		}
		stream, number, _ := strings.Cut(rest, ".")
		segment, err := strconv.ParseInt(number, 10, 64)
		s := Stdout
		if stream == string(sandbox.Stderr) {
			s = Stderr
		}
		if err != nil || stream != string(StreamName(s)) {
			return xs, fmt.Errorf("%s is not the name of a log", name)
		}
		found[s] = append(found[s], segment)
	}
	for s, segments := range found {
		if len(segments) == 0 {
			continue
		}
		slices.Sort(segments)
		last := segments[len(segments)-1]
		info, err := f.root.Stat(f.name(s, last))
		if err != nil {
			return xs, err
		}
		xs[s].Total = last*segmentSize + info.Size()
		// There is one gap at most: segments are dropped in order, behind the
		// head.
		for i, segment := range segments {
			if segment != int64(i) {
				xs[s].GapFrom, xs[s].GapTo = int64(i)*segmentSize, segment*segmentSize
				break
			}
		}
	}
	return xs, nil
}

// Read reads up to n bytes of a stream at offset, and stops early at the gap
// and at the end. At the end it returns no bytes. An offset within the gap is
// of kind NotFound, with a [sandbox.Gap].
func (f Files) Read(stream int, x Extent, offset int64, n int64) ([]byte, error) {
	if offset >= x.GapFrom && offset < x.GapTo {
		return nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.NotFound, "%w", &sandbox.Gap{Stream: StreamName(stream), From: x.GapFrom, To: x.GapTo}),
			"go on at %d; let the program write what matters to a file", x.GapTo)
	}
	end := x.Total
	if offset < x.GapFrom {
		end = x.GapFrom
	}
	n = min(n, end-offset)
	if n <= 0 {
		return nil, nil
	}
	buf := make([]byte, n)
	for done := int64(0); done < n; {
		at := offset + done
		part := min(n-done, segmentSize-at%segmentSize)
		if err := f.readPart(stream, at, buf[done:done+part]); err != nil {
			return nil, err
		}
		done += part
	}
	return buf, nil
}

// readPart fills p from one segment.
func (f Files) readPart(stream int, offset int64, p []byte) error {
	file, err := f.root.Open(f.name(stream, offset/segmentSize))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.ReadAt(p, offset%segmentSize)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Remove removes all files of the log, and the results.
func (f Files) Remove() error {
	xs, err := f.Extents()
	if err != nil {
		return err
	}
	var errs []error
	if err := f.root.Remove(f.resultsName()); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for s := range Streams {
		for at := int64(0); at < xs[s].Total; at += segmentSize {
			if at < xs[s].GapFrom || at >= xs[s].GapTo {
				errs = append(errs, f.root.Remove(f.name(s, at/segmentSize)))
			}
		}
	}
	return errors.Join(errs...)
}

// baselineSuffix ends the name of the file with the state of the workspace
// before the run.
const baselineSuffix = "before"

func (f Files) baselineName() string { return f.sandbox + "/" + f.run + "." + baselineSuffix }

// CreateBaseline makes the file for the state of the workspace before the run.
func (f Files) CreateBaseline() (*os.File, error) {
	return f.open(f.baselineName(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
}

// OpenBaseline opens the file that CreateBaseline made.
func (f Files) OpenBaseline() (*os.File, error) { return f.root.Open(f.baselineName()) }

// RemoveBaseline removes the file that CreateBaseline made, if there is one.
func (f Files) RemoveBaseline() error {
	if err := f.root.Remove(f.baselineName()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resultsSuffix ends the name of the file of a run's results, where the files
// of output have a stream and a number.
const resultsSuffix = "results"

func (f Files) resultsName() string { return f.sandbox + "/" + f.run + "." + resultsSuffix }
