package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
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

// A Mark names a record by its number and the hash of its line. An operator who keeps
// marks in another place can show that the Log up to there was not written anew.
type Mark struct {
	Seq  int64
	hash hash
}

// String returns the mark as ParseMark takes it: the number, a colon and the hash.
func (m Mark) String() string { return fmt.Sprintf("%d:%s", m.Seq, m.hash) }

// ParseMark is the inverse of [Mark.String]. The error wraps [sandbox.Invalid].
func ParseMark(text string) (Mark, error) {
	number, sum, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	h, ok := parseHash(sum)
	if err != nil || seq < 1 || !ok {
		return Mark{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "mark: %q is not a record's number, a colon and 64 hexadecimal digits", short(text)),
			"use a mark that glovebox audit verify printed")
	}
	return Mark{seq, h}, nil
}

// A Report is the result of [Verify] for a Log whose lines are complete.
type Report struct {
	// Records is the number of records. First is the number of the oldest one: more
	// than 1 if files were removed.
	Records, First int64
	Files          int
	// Last names the last record; its Seq is 0 if there are none.
	Last Mark
}

// A Broken error says where a Log is not as it was written.
type Broken struct {
	File   string
	Line   int64 // in the file, from 1; 0 is the whole file
	Reason string
}

// Unwrap returns [sandbox.Conflict], the kind of the error.
func (b *Broken) Unwrap() error { return sandbox.Conflict }

func (b *Broken) Error() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s", b.File, b.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Reason)
}

// Verify reads the whole Log of a directory and checks each line, the head, and that
// the Log still has the marks. It ignores records that are appended meanwhile. The
// error is a [*Broken] if a line was changed, removed or inserted. It wraps
// [sandbox.NotFound] if there is no Log.
func Verify(dir string, marks ...Mark) (Report, error) {
	root, head, files, err := snapshot(dir)
	if err != nil {
		return Report{}, err
	}
	defer root.Close()
	defer closeAll(files)
	c := checker{marks: map[int64]hash{}}
	for _, m := range marks {
		c.marks[m.Seq] = m.hash
	}
	for _, f := range files {
		if err := c.file(f); err != nil {
			return Report{}, err
		}
	}
	// A process that was killed may have written one record, but not the head.
	is, unnoted := Mark{head.seq, head.hash}, c.last.Seq == head.seq+1
	if c.last != is && !(unnoted && (c.before == is || head.seq == 0)) {
		return Report{}, &Broken{File: headName, Reason: fmt.Sprintf("the last record must be %s, and is %s", is, c.last)}
	}
	if c.first > 1 && c.pruned < c.first-1 {
		return Report{}, &Broken{File: files[0].name, Reason: fmt.Sprintf("records before number %d are missing, and no record says that they were removed", c.first)}
	}
	for seq := range c.marks {
		return Report{}, &Broken{File: headName, Reason: fmt.Sprintf("record %d of a mark is not in the log", seq)}
	}
	return Report{Records: c.records, First: c.first, Files: len(files), Last: c.last}, nil
}

// Read calls f with the records of a Log, oldest first, until f returns false. It
// does not verify them; a line that is no record is a [*Broken].
func Read(dir string, f func(Record) bool) error {
	root, _, files, err := snapshot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	defer closeAll(files)
	for _, file := range files {
		more := true
		err := lines(file, func(_ int64, line []byte) (string, bool) {
			var r Record
			if json.Unmarshal(line, &r) != nil {
				return "the line is no record", false
			}
			more = f(r)
			return "", more
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Last returns the latest records of a Log that match selects, the latest first and at
// most n. It reads no older file than it needs, and verifies nothing. The errors are
// those of [Read]; with one, the records of newer files are in the list.
func Last(dir string, n int, match func(Record) bool) ([]Record, error) {
	root, _, files, err := snapshot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	defer closeAll(files)
	var list []Record
	for _, file := range slices.Backward(files) {
		var found []Record // of this file, in its order
		err := lines(file, func(_ int64, line []byte) (string, bool) {
			var r Record
			if json.Unmarshal(line, &r) != nil {
				return "the line is no record", false
			}
			if match(r) {
				if found = append(found, r); len(found) >= 2*n {
					found = slices.Delete(found, 0, len(found)-n)
				}
			}
			return "", true
		})
		if err != nil {
			return list, err
		}
		for _, r := range slices.Backward(found) {
			if len(list) == n {
				return list, nil
			}
			list = append(list, r)
		}
	}
	return list, nil
}

// A section is a file of a Log, up to the end that it had in the snapshot.
type section struct {
	*os.File
	name string
	size int64
}

// clip leaves out the beginning of a record after the head's. Its process was killed
// before it acknowledged the record.
func (f *section) clip(end int64) error {
	if f.size <= end || f.size-end > maxLine {
		return nil
	}
	rest := make([]byte, f.size-end)
	if _, err := f.ReadAt(rest, end); err != nil {
		return err
	}
	if !bytes.Contains(rest, []byte("\n")) {
		f.size = end
	}
	return nil
}

func closeAll(files []section) {
	for _, f := range files {
		f.Close() // only read
	}
}

// snapshot opens all files of a Log as they are between two records.
func snapshot(name string) (_ *os.Root, _ position, files []section, err error) {
	root, err := os.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, position{}, nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no audit log in %s", name),
			"set audit.enabled in the configuration")
	}
	if err != nil {
		return nil, position{}, nil, unusable(name, err)
	}
	defer func() {
		if err != nil {
			closeAll(files)
			root.Close()
		}
	}()
	unlock, err := locked(root, false)
	if err != nil {
		return nil, position{}, nil, unusable(name, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	f, err := root.Open(headName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, position{}, nil, &Broken{File: headName, Reason: "the file is missing"}
	}
	if err != nil {
		return nil, position{}, nil, unusable(name, err)
	}
	head, err := readHead(f)
	f.Close()
	if err != nil {
		return nil, position{}, nil, &Broken{File: headName, Reason: err.Error()}
	}
	closed, err := closedFiles(root)
	if err != nil {
		return nil, position{}, nil, unusable(name, err)
	}
	for _, c := range append(closed, closedFile{name: currentName}) {
		f, err := root.Open(c.name)
		if c.name == currentName && errors.Is(err, fs.ErrNotExist) {
			continue // its process was killed while it began the file
		}
		if err != nil {
			return nil, position{}, files, unusable(name, err)
		}
		files = append(files, section{f, c.name, 0})
		info, err := f.Stat()
		if err != nil {
			return nil, position{}, files, unusable(name, err)
		}
		files[len(files)-1].size = info.Size()
	}
	if n := len(files); n > 0 && files[n-1].name == currentName {
		if err := files[n-1].clip(head.size); err != nil {
			return nil, position{}, files, unusable(name, err)
		}
	}
	return root, head, files, nil
}

// lines calls f with each line of a file and its number, until f returns false. A
// reason of f other than "" makes a Broken.
func lines(file section, f func(n int64, line []byte) (reason string, more bool)) error {
	r := bufio.NewReaderSize(io.NewSectionReader(file, 0, file.size), maxLine+1)
	for n := int64(1); ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return &Broken{file.name, n, "the last line is not complete"}
		case errors.Is(err, bufio.ErrBufferFull):
			return &Broken{file.name, n, "the line is too long"}
		case err != nil:
			return sandbox.Errorf(sandbox.Unavailable, "read %s: %w", file.name, err)
		}
		reason, more := f(n, bytes.TrimSuffix(line, []byte("\n")))
		if reason != "" {
			return &Broken{file.name, n, reason}
		}
		if !more {
			return nil
		}
	}
}

// A checker follows the chain of lines through the files.
type checker struct {
	marks   map[int64]hash // not seen yet
	records int64
	first   int64
	last    Mark
	before  Mark  // before the last
	pruned  int64 // last record that was removed with its file
}

func (c *checker) file(f section) error {
	return lines(f, func(n int64, line []byte) (string, bool) {
		var r Record
		if json.Unmarshal(line, &r) != nil {
			return "the line is no record", false
		}
		switch {
		case c.records == 0 && r.Seq == 1 && r.Prev != (hash{}).String():
			return "the first record follows another one", false
		case c.records == 0 && r.Seq < 1:
			return "the record has no number", false
		case c.records > 0 && r.Seq != c.last.Seq+1:
			return fmt.Sprintf("record %d follows record %d", r.Seq, c.last.Seq), false
		case c.records > 0 && r.Prev != c.last.hash.String():
			return fmt.Sprintf("record %d was changed", c.last.Seq), false
		case r.Action == LogGap:
			return "an earlier change of the log was noted here: " + short(r.Detail["reason"]), false
		}
		if c.records == 0 {
			c.first = r.Seq
		}
		if r.Action == LogPrune {
			if n, err := strconv.ParseInt(r.Detail["last"], 10, 64); err == nil {
				c.pruned = max(c.pruned, n)
			}
		}
		c.records++
		c.before, c.last = c.last, Mark{r.Seq, sha256.Sum256(line)}
		if want, ok := c.marks[r.Seq]; ok {
			if want != c.last.hash {
				return fmt.Sprintf("record %d is not the one of the mark", r.Seq), false
			}
			delete(c.marks, r.Seq)
		}
		return "", true
	})
}
