package engine

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

// logFiles names the log of one run.
type logFiles struct {
	root         *os.Root
	sandbox, run string
}

func streamName(s int) sandbox.StreamName {
	if s == stderr {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

// The streams as array indexes.
const (
	stdout = iota
	stderr
	streams
)

func (f logFiles) name(stream int, segment int64) string {
	return fmt.Sprintf("%s/%s.%s.%06d", f.sandbox, f.run, streamName(stream), segment)
}

// create makes the file of a new segment.
func (f logFiles) create(stream int, segment int64) (*os.File, error) {
	return f.open(f.name(stream, segment), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

// open opens a file for writing, and creates its directory if necessary.
func (f logFiles) open(name string, flags int) (*os.File, error) {
	file, err := f.root.OpenFile(name, flags, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := f.root.Mkdir(f.sandbox, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.root.OpenFile(name, flags, 0o600)
}

// An extent describes the bytes of one stream: total bytes, without the dropped
// bytes from gapFrom to gapTo.
type extent struct {
	total, gapFrom, gapTo int64
}

func (x extent) kept() int64 { return x.total - (x.gapTo - x.gapFrom) }

// extents works out the extent of each stream from the files.
func (f logFiles) extents() ([streams]extent, error) {
	var (
		xs    [streams]extent
		found [streams][]int64
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
		s := stdout
		if stream == string(sandbox.Stderr) {
			s = stderr
		}
		if err != nil || stream != string(streamName(s)) {
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
		xs[s].total = last*segmentSize + info.Size()
		// There is one gap at most: segments are dropped in order, behind the
		// head.
		for i, segment := range segments {
			if segment != int64(i) {
				xs[s].gapFrom, xs[s].gapTo = int64(i)*segmentSize, segment*segmentSize
				break
			}
		}
	}
	return xs, nil
}

// read reads up to n bytes of a stream at offset, and stops early at the gap
// and at the end. At the end it returns no bytes. An offset within the gap is
// of kind NotFound.
func (f logFiles) read(stream int, x extent, offset int64, n int64) ([]byte, error) {
	if offset >= x.gapFrom && offset < x.gapTo {
		return nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.NotFound, "offset: bytes %d to %d of %s were not kept", x.gapFrom, x.gapTo, streamName(stream)),
			"go on at %d; let the program write what matters to a file", x.gapTo)
	}
	end := x.total
	if offset < x.gapFrom {
		end = x.gapFrom
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
func (f logFiles) readPart(stream int, offset int64, p []byte) error {
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

// remove removes all files of the log, and the results.
func (f logFiles) remove() error {
	xs, err := f.extents()
	if err != nil {
		return err
	}
	var errs []error
	if err := f.root.Remove(f.resultsName()); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for s := range streams {
		for at := int64(0); at < xs[s].total; at += segmentSize {
			if at < xs[s].gapFrom || at >= xs[s].gapTo {
				errs = append(errs, f.root.Remove(f.name(s, at/segmentSize)))
			}
		}
	}
	return errors.Join(errs...)
}
