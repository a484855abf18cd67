package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Packer compresses saved states that stay unused. It packs one state at a time, also
// if several processes have a Packer of the same directory, in a thread of low priority.
//
// A state stays usable at every moment. The Packer writes the packed state into Dir, and
// exchanges the two directories in one step when all of it is on the disk. A state that
// is used meanwhile is not packed.
type Packer struct {
	// Dir is the directory for the state that is being packed, on the file system of the
	// states. The remains of a killed process are removed by the next Pack.
	Dir string
	// Based is the name of the file that is written as its difference from the base, if
	// there is one.
	Based string

	// step is called before each step that changes the disk, in tests.
	step func(name string) error
}

// Pack packs the state of a box at dir, and returns its length on the disk. It has no
// effect on a state that is packed or encrypted, or whose build reads no packed ones. The
// error is of kind Conflict if the state was used meanwhile, or another process packs a
// state.
func (p *Packer) Pack(ctx context.Context, dir, box string) (int64, error) {
	var total int64
	ended := make(chan error)
	go func() {
		// The thread keeps its priority, so it ends with the goroutine.
		runtime.LockOSThread()
		yieldToOthers()
		var err error
		total, err = p.pack(ctx, dir, box)
		ended <- err
	}()
	return total, <-ended
}

// packNice gives others ten times as much of a processor. The lowest priority, 19, would
// give them seventy times as much: states would stay uncompressed on a busy machine.
const packNice = 10

// yieldToOthers gives this thread a low priority for processors, and the lowest for disks.
// If the machine refuses that, the thread works at its ordinary one.
func yieldToOthers() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, packNice)
	const thread, bestEffort, lowest = 1, 2 << 13, 7
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, thread, 0, bestEffort|lowest)
}

// errUsed means that the state was used while it was packed.
var errUsed = sandbox.Errorf(sandbox.Conflict, "the state was used")

func (p *Packer) pack(ctx context.Context, dir, box string) (_ int64, err error) {
	turn, err := p.begin()
	if err != nil {
		return 0, err
	}
	defer turn.Close()
	place, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%w: %w", errUsed, err)
	}
	if err != nil {
		return 0, err
	}
	defer place.Close()
	defer func() {
		if err != nil && sandbox.KindOf(err) != sandbox.Conflict && !isAt(place, dir) {
			err = fmt.Errorf("%w: %w", errUsed, err)
		}
	}()
	if m, err := reading(dir, readManifest); err != nil {
		return 0, err
	} else if m.Packed != nil || m.Sealed != nil || m.Reads < FormatPacked {
		return m.Bytes(), nil
	}
	s, err := Open(dir, box, nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	m := *s.Manifest
	m.Format, m.Packed = FormatPacked, map[string]Sum{}
	var base *os.File
	if m.Reads >= FormatBased && s.files[p.Based] != nil {
		if base, err = openBase(dir); err != nil {
			return 0, err
		}
	}
	if base != nil {
		defer base.Close()
		m.Format, m.Based = FormatBased, p.Based
	}
	fresh := filepath.Join(p.Dir, box)
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	for name, f := range s.files {
		if err := p.before(name); err != nil {
			return 0, err
		}
		used := func() error {
			if !isAt(place, dir) {
				return errUsed
			}
			return ctx.Err()
		}
		var from *os.File
		if name == m.Based {
			from = base
		}
		if m.Packed[name], err = packFile(filepath.Join(fresh, name), f, from, m.Files[name], used); err != nil {
			return 0, err
		}
	}
	if err := p.before("manifest"); err != nil {
		return 0, err
	}
	if err := writeManifest(fresh, &m); err != nil {
		return 0, err
	}
	if err := p.before("exchange"); err != nil {
		return 0, err
	}
	if err := exchange(place, fresh, dir); err != nil {
		return 0, err
	}
	return m.Bytes(), p.before("remove") // the state as it was, which is now at fresh
}

// begin waits for no other packer, and removes the remains of a killed one. The caller
// closes the file, which lets others begin.
func (p *Packer) begin() (*os.File, error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, err
	}
	turn, err := os.Open(p.Dir)
	if err != nil {
		return nil, err
	}
	if err := flock(turn, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = sandbox.Errorf(sandbox.Conflict, "another process packs a state")
		}
		return nil, errors.Join(err, turn.Close())
	}
	left, err := turn.Readdirnames(-1)
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.Dir, name)))
	}
	if err != nil {
		return nil, errors.Join(err, turn.Close())
	}
	return turn, nil
}

func (p *Packer) before(step string) error {
	if p.step == nil {
		return nil
	}
	return p.step(step)
}

// exchange puts the packed state in the place of the state as it was. The file place is
// the directory of the latter.
func exchange(place *os.File, fresh, dir string) error {
	if err := flock(place, unix.LOCK_EX); err != nil {
		return err
	}
	defer flock(place, unix.LOCK_UN) //nolint:errcheck // which its end does otherwise
	if !isAt(place, dir) {
		return errUsed
	}
	if err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return sandbox.Errorf(sandbox.Unsupported, "the file system of %s cannot exchange two directories: %w", dir, err)
		}
		return &os.LinkError{Op: "exchange", Old: fresh, New: dir, Err: err}
	}
	return syncDir(filepath.Dir(dir))
}

// packFile writes a file with the compressed content of another one, whose sum it
// checks, or its difference from a base that is not nil. It calls stop from time to time,
// and ends with its error.
func packFile(path string, from, base *os.File, sum Sum, stop func() error) (Sum, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Sum{}, err
	}
	defer out.Close()
	written := &summer{w: out}
	c, err := newCompressor(written)
	if err != nil {
		return Sum{}, err
	}
	defer c.free()
	read := &summer{w: c.z, stop: stop}
	content := io.NewSectionReader(from, 0, sum.Bytes+1)
	if base != nil {
		read.w = io.Discard
		err = writeDifference(c.z, io.TeeReader(content, read), base, c.buffer)
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{read}, content, c.buffer)
	}
	err = errors.Join(err, c.z.Close())
	if err == nil && read.sum != sum {
		err = damaged("%s has another checksum", filepath.Base(path))
	}
	if err == nil {
		err = out.Sync()
	}
	return written.sum, noSpace(err)
}

// noSpace makes a full disk an error of kind Exhausted.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return sandbox.NoSpace(err)
	}
	return err
}

// A compressor is a writer of zstd that works in the goroutine of its caller, and a
// buffer. It has some 7 MB, so that of the file before is used again.
type compressor struct {
	z      *zstd.Encoder
	buffer []byte
}

// spare is the compressor of the file before, for a short time. A sync.Pool would keep
// one for each CPU.
var spare struct {
	sync.Mutex
	c    *compressor
	drop *time.Timer
}

// spareTime is how long a compressor waits for the next file.
const spareTime = 10 * time.Second

// newCompressor returns a compressor that writes to w. The sums of the manifest make
// zstd's own checksum needless.
func newCompressor(w io.Writer) (*compressor, error) {
	spare.Lock()
	c := spare.c
	spare.c = nil
	spare.Unlock()
	if c != nil {
		c.z.Reset(w)
		return c, nil
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &compressor{z, make([]byte, 1<<20)}, nil
}

// free lets another file use the compressor.
func (c *compressor) free() {
	c.z.Reset(nil)
	spare.Lock()
	defer spare.Unlock()
	spare.c = c
	if spare.drop == nil {
		spare.drop = time.AfterFunc(spareTime, dropSpare)
	} else {
		spare.drop.Reset(spareTime)
	}
}

func dropSpare() {
	spare.Lock()
	defer spare.Unlock()
	spare.c = nil
}

// window is how far apart equal data may be, in bytes.
const window = 4 << 20

// A summer writes on, and keeps the length and the checksum of what was written.
type summer struct {
	w    io.Writer
	stop func() error // is called before each write, if it is not nil
	sum  Sum
}

func (s *summer) Write(data []byte) (int, error) {
	if s.stop != nil {
		if err := s.stop(); err != nil {
			return 0, err
		}
	}
	n, err := s.w.Write(data)
	s.sum = Sum{s.sum.Bytes + int64(n), crc32.Update(s.sum.CRC, castagnoli, data[:n])}
	return n, err
}

// unpack writes the content of a packed file into the file that Files returned, if it
// did, and checks the sums of both.
func (s *State) unpack(name string, packed *os.File) error {
	stored := &summer{w: io.Discard}
	from, err := s.contentOf(name, io.TeeReader(io.NewSectionReader(packed, 0, 1<<62), stored))
	if err != nil {
		return damaged("%s: %w", name, err)
	}
	z, err := zstd.NewReader(from, zstd.WithDecoderMaxWindow(window), zstd.WithDecoderConcurrency(2))
	if err != nil {
		return err
	}
	defer z.Close()
	want := s.Manifest.Files[name]
	out := &sparse{f: s.unpacked[name]}
	content := &summer{w: out}
	buffer := make([]byte, 1<<20)
	if name == s.Manifest.Based {
		err = readDifference(content, z, s.base, want.Bytes, buffer)
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{content}, io.LimitReader(struct{ io.Reader }{z}, want.Bytes+1), buffer)
	}
	if err == nil {
		err = out.end()
	}
	if out.err != nil {
		return fmt.Errorf("unpack the saved state: %w", noSpace(out.err))
	}
	if err != nil || content.sum != want || stored.sum != s.Manifest.Packed[name] {
		return damaged("%s has another checksum (%v)", name, err)
	}
	return nil
}

// A sparse writes a file from its beginning, and leaves holes for pages of zeros. A nil
// file discards what is written.
type sparse struct {
	f   *os.File
	at  int64
	err error // of the file
}

// page is the size of a hole, in bytes. A write has whole pages, except the last.
const page = 4096

var zeros [page]byte

func (s *sparse) Write(data []byte) (int, error) {
	if s.f == nil {
		return len(data), nil
	}
	for from := 0; from < len(data); {
		to := from
		for to < len(data) && !isZero(data[to:min(to+page, len(data))]) {
			to = min(to+page, len(data))
		}
		if to > from {
			if _, err := s.f.WriteAt(data[from:to], s.at+int64(from)); err != nil {
				s.err = err
				return 0, err
			}
		}
		from = min(to+page, len(data)) // the page at to is a hole
	}
	s.at += int64(len(data))
	return len(data), nil
}

// end gives the file its length, which a hole at its end does not.
func (s *sparse) end() error {
	if s.f == nil {
		return nil
	}
	s.err = s.f.Truncate(s.at)
	return s.err
}

func isZero(data []byte) bool { return bytes.Equal(data, zeros[:len(data)]) }
