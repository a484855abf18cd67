package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/filelock"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Names in the directory of a Log.
const (
	currentName = "audit.jsonl"
	headName    = "head"
	lockName    = "lock"
	filePrefix  = "audit-"
	fileSuffix  = ".jsonl"
)

// Options are the parameters of [Open]. Dir and Log are required.
type Options struct {
	// Dir is the directory, which Open makes if it is missing.
	Dir string
	// FileSize is the size in bytes at which a file is closed and the next begins.
	// Zero is never.
	FileSize int64
	// Keep is the number of closed files that are kept; the oldest ones are removed.
	// Zero keeps all.
	Keep int
	// Sync waits until the disk has a record before Append returns.
	Sync bool
	Log  *slog.Logger
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// A Log is an append-only sequence of records, which other processes may append to
// at the same time.
type Log struct {
	opts Options
	dir  *os.Root

	mu      sync.Mutex
	head    *os.File
	current *os.File // nil before the first record
	at      position
	known   bool // at was true when this process released the lock
}

// A position is the place after a record of a Log.
type position struct {
	seq  int64
	hash hash
	size int64 // of the current file
}

// Open opens the Log of a directory. Errors wrap [sandbox.Unavailable].
func Open(o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, unusable(o.Dir, err)
	}
	dir, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, unusable(o.Dir, err)
	}
	head, err := dir.OpenFile(headName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(o.Dir, errors.Join(err, dir.Close()))
	}
	return &Log{opts: o, dir: dir, head: head}, nil
}

func unusable(dir string, err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "audit log in %s: %w", dir, err),
		"check the free space and the permissions of the directory")
}

// Close closes the Log's files.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := []error{l.head.Close(), l.dir.Close()}
	if l.current != nil {
		errs = append(errs, l.current.Close())
	}
	return errors.Join(errs...)
}

// Append writes a record as the last one and returns its line, without a newline. If
// it fails, the Log is as before, and the error wraps [sandbox.Unavailable].
func (l *Log) Append(r Record) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, err := l.appendLocked(r)
	if err != nil {
		l.known = false
		return nil, unusable(l.opts.Dir, err)
	}
	return line, nil
}

func (l *Log) appendLocked(r Record) (_ []byte, err error) {
	unlock, err := locked(l.dir, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := l.catchUpLocked(); err != nil {
		return nil, err
	}
	if l.opts.FileSize > 0 && l.at.size >= l.opts.FileSize {
		if err := l.rotateLocked(); err != nil {
			return nil, err
		}
	}
	return l.writeLocked(r)
}

// locked takes the lock of a Log's directory, exclusively to write.
func locked(dir *os.Root, exclusive bool) (unlock func() error, err error) {
	f, err := dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(f, exclusive, true); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// writeLocked writes a record after the last one. The position is up to date.
func (l *Log) writeLocked(r Record) ([]byte, error) {
	r = r.bounded()
	r.Seq, r.Time, r.Prev = l.at.seq+1, l.opts.Now().UTC().Truncate(time.Microsecond), l.at.hash.String()
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	before := l.at
	if _, err := l.current.WriteAt(append(line, '\n'), before.size); err != nil {
		// A part of a line must not stay: a reader would take it for a change.
		return nil, errors.Join(err, l.current.Truncate(before.size))
	}
	if l.opts.Sync {
		if err := l.current.Sync(); err != nil {
			return nil, errors.Join(err, l.current.Truncate(before.size))
		}
	}
	next := position{seq: r.Seq, hash: sha256.Sum256(line), size: before.size + int64(len(line)) + 1}
	if err := l.writeHead(next); err != nil {
		return nil, errors.Join(err, l.current.Truncate(before.size))
	}
	l.at = next
	return line, nil
}

// headSize is the length of the head in bytes. It never changes, so that writing it
// needs no space on the disk.
const headSize = 20 + 1 + 2*sha256.Size + 1 + 20 + 1

func (l *Log) writeHead(p position) error {
	_, err := l.head.WriteAt(fmt.Appendf(nil, "%020d %s %020d\n", p.seq, p.hash, p.size), 0)
	return err
}

// readHead returns the position in the head. A Log without records has none.
func readHead(f *os.File) (position, error) {
	buf := make([]byte, headSize+1)
	n, err := f.ReadAt(buf, 0)
	if n == 0 && err == io.EOF {
		return position{}, nil
	}
	if err != nil && err != io.EOF {
		return position{}, err
	}
	words := strings.Fields(string(buf[:n]))
	if n != headSize || len(words) != 3 {
		return position{}, errHead
	}
	seq, err1 := strconv.ParseInt(words[0], 10, 64)
	size, err2 := strconv.ParseInt(words[2], 10, 64)
	h, ok := parseHash(words[1])
	if err1 != nil || err2 != nil || !ok || seq < 0 || size < 0 {
		return position{}, errHead
	}
	return position{seq: seq, hash: h, size: size}, nil
}

var errHead = errors.New("the file head is damaged")

// catchUpLocked makes the position that of the last record, which another process may
// have written, and opens the current file.
func (l *Log) catchUpLocked() error {
	at, err := readHead(l.head)
	if err != nil {
		return err
	}
	same, err := l.currentLocked()
	if err != nil {
		return err
	}
	size, err := l.current.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if l.known && same && at == l.at && size == at.size {
		return nil
	}
	if l.at, err = l.repairLocked(at, size); err != nil {
		return err
	}
	l.known = true
	return nil
}

// currentLocked opens the current file, and reports whether it is the file of before.
func (l *Log) currentLocked() (same bool, err error) {
	if l.current != nil {
		there, err := l.dir.Stat(currentName)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err == nil {
			held, err := l.current.Stat()
			if err != nil {
				return false, err
			}
			if os.SameFile(there, held) {
				return true, nil
			}
		}
		// Another process began a new file.
		err = l.current.Close()
		l.current = nil
		if err != nil {
			return false, err
		}
	}
	l.current, err = l.dir.OpenFile(currentName, os.O_RDWR|os.O_CREATE, 0o600)
	return false, err
}

// repairLocked returns the position after the last record, when the head says at and
// the current file has size bytes. They differ if a process was killed between its two
// writes, or if another process changed the file.
func (l *Log) repairLocked(at position, size int64) (position, error) {
	if size == at.size {
		return at, nil
	}
	if size < at.size {
		if closed, err := l.closed(); err != nil {
			return at, err
		} else if n := len(closed); size == 0 && n > 0 && closed[n-1].size == at.size {
			at.size = 0 // a process was killed while it began a new file
			return at, l.writeHead(at)
		}
		at.size = size
		return l.gapLocked(at, "records are missing at the end of the file")
	}
	rest := make([]byte, min(size-at.size, maxLine+1))
	if _, err := l.current.ReadAt(rest, at.size); err != nil {
		return at, err
	}
	line, _, whole := bytes.Cut(rest, []byte("\n"))
	if !whole && size-at.size <= maxLine {
		// The record was never acknowledged.
		return at, l.current.Truncate(at.size)
	}
	var r Record
	if whole && json.Unmarshal(line, &r) == nil && r.Seq == at.seq+1 && r.Prev == at.hash.String() && int64(len(line))+1 == size-at.size {
		at = position{seq: r.Seq, hash: sha256.Sum256(line), size: size}
		return at, l.writeHead(at)
	}
	at.size = size
	return l.gapLocked(at, "the file has lines that are not of this log")
}

// gapLocked continues after the last known record with a record of the gap, which
// Verify reports for ever.
func (l *Log) gapLocked(at position, why string) (position, error) {
	l.opts.Log.Error("audit log was changed", "dir", l.opts.Dir, "reason", why, "after", at.seq)
	l.at = at
	if _, err := l.writeLocked(Record{Action: LogGap, Outcome: string(sandbox.Conflict), Detail: map[string]string{"reason": why}}); err != nil {
		return at, err
	}
	return l.at, nil
}

// rotateLocked closes the current file and begins the next one.
func (l *Log) rotateLocked() error {
	first, err := firstSeq(l.current)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%012d%s", filePrefix, first, fileSuffix)
	// Renaming an open file fails on Windows.
	if err := l.current.Close(); err != nil {
		return err
	}
	l.current = nil
	if err := l.dir.Rename(currentName, name); err != nil {
		return err
	}
	if _, err := l.currentLocked(); err != nil {
		return err
	}
	l.at.size = 0
	if err := l.writeHead(l.at); err != nil {
		return err
	}
	return l.pruneLocked()
}

// pruneLocked removes the oldest files beyond the number to keep.
func (l *Log) pruneLocked() error {
	if l.opts.Keep <= 0 {
		return nil
	}
	closed, err := l.closed()
	if err != nil {
		return err
	}
	if len(closed) <= l.opts.Keep {
		return nil
	}
	old, next := closed[:len(closed)-l.opts.Keep], l.at.seq+1
	if kept := closed[len(old):]; len(kept) > 0 {
		next = kept[0].first
	}
	// The record comes first, so that no removal goes without one.
	_, err = l.writeLocked(Record{Action: LogPrune, Outcome: OK, Detail: map[string]string{
		"first": strconv.FormatInt(old[0].first, 10), "last": strconv.FormatInt(next-1, 10),
	}})
	for _, f := range old {
		err = errors.Join(err, l.dir.Remove(f.name))
	}
	return err
}

// A closedFile is a file of a Log before the current one.
type closedFile struct {
	name  string
	first int64 // number of its first record
	size  int64
}

// closed returns the closed files, oldest first.
func (l *Log) closed() ([]closedFile, error) { return closedFiles(l.dir) }

func closedFiles(dir *os.Root) ([]closedFile, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var list []closedFile
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), filePrefix)
		if !ok {
			continue
		}
		digits, ok = strings.CutSuffix(digits, fileSuffix)
		first, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		list = append(list, closedFile{e.Name(), first, info.Size()})
	}
	slices.SortFunc(list, func(a, b closedFile) int { return cmp.Compare(a.first, b.first) })
	return list, nil
}

// firstSeq returns the number of a file's first record.
func firstSeq(f *os.File) (int64, error) {
	buf := make([]byte, maxLine)
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	line, _, whole := bytes.Cut(buf[:n], []byte("\n"))
	var r Record
	if !whole || json.Unmarshal(line, &r) != nil || r.Seq < 1 {
		return 0, errors.New("the first line of " + currentName + " is damaged")
	}
	return r.Seq, nil
}
