package safepath

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Limits bound an extraction, an export or a copy. Zero is no limit. [MaxDepth]
// bounds Depth in any case.
type Limits struct {
	Files int   // of any type, with the directories that names imply
	Bytes int64 // of all files together, including holes
	Depth int
	// Ratio bounds the size of a decompressed archive divided by its compressed
	// size. The first MiB is exempt.
	Ratio int64
	// AnyBytes accepts names that are not UTF-8, for archives that copy one
	// directory to another.
	AnyBytes bool
	// Only, unless nil, reports whether the archive may have a name.
	Only func(name string) bool
}

// Counts are the files that were extracted, exported or copied. An extraction
// counts each directory that it creates, with or without an entry.
type Counts struct {
	Files, Directories, Links int
	Bytes                     int64
	// Skipped counts other files, which are left out: FIFOs, sockets, devices.
	Skipped int
}

// total returns the number of files of all types.
func (c *Counts) total() int { return c.Files + c.Directories + c.Links + c.Skipped }

// Extract extracts a tar archive, optionally compressed by gzip, into d. If
// unpacking fails, d does not change. The archive is unpacked in staging, as for
// [Dir.Create]. Then [Dir.Merge] moves its files into d. Links are created
// unchanged, and a name below a link of the archive stays inside the archive. The
// error wraps [ErrName] for absolute names, for "..", and for hard links to files
// that are not in the archive. It wraps [ErrType] if a directory would replace a
// file or a file a directory.
func (d *Dir) Extract(ctx context.Context, r io.Reader, staging *Dir, lim Limits) (Counts, error) {
	return d.unpack(ctx, r, staging, lim, func(into *Dir) error {
		return d.Merge(ctx, into)
	})
}

// unpack unpacks an archive in staging, and calls put when it is complete.
func (d *Dir) unpack(ctx context.Context, r io.Reader, staging *Dir, lim Limits, put func(into *Dir) error) (Counts, error) {
	name := tempName()
	if err := staging.root.Mkdir(name, 0o700); err != nil {
		return Counts{}, err
	}
	defer staging.RemoveAll(name) //nolint:errcheck // the next start removes what is left
	into, err := staging.Sub(name)
	if err != nil {
		return Counts{}, err
	}
	defer into.Close()
	into.uid, into.gid = d.uid, d.gid
	x := extraction{ctx: ctx, into: into, lim: lim}
	if err := x.all(r); err != nil {
		return Counts{}, err
	}
	return x.counts, put(into)
}

type extraction struct {
	ctx    context.Context
	into   *Dir
	lim    Limits
	counts Counts
	// entries bounds the work: a directory may have any number of entries.
	entries int
	skipped int64 // bytes of the entries that are left out
}

// ratioFree is the size up to which the ratio is not checked, in bytes.
const ratioFree = 1 << 20

func (x *extraction) all(r io.Reader) error {
	in := &countingReader{r: contextReader{x.ctx, r}}
	buffered := bufio.NewReaderSize(in, 64<<10)
	var content io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
		defer z.Close()
		content = &ratioReader{r: z, in: in, ratio: x.lim.Ratio}
	}
	// Package archive/tar reads over the contents of entries, which can be long.
	unpacked := &countingReader{r: contextReader{x.ctx, content}}
	archive := tar.NewReader(unpacked)
	var end int64 // of the last file, if its size in the archive is known
	for {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if err == io.EOF {
			// An archive without its end mark was truncated.
			if x.entries > 0 && unpacked.n < end+tarBlock {
				return fmt.Errorf("read archive: %w", io.ErrUnexpectedEOF)
			}
			return x.toEnd(unpacked)
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		end = unpacked.n
		if h.Typeflag == tar.TypeReg && !isSparse(h) {
			end += (h.Size + tarBlock - 1) / tarBlock * tarBlock
		}
		if err := x.one(h, archive); err != nil {
			return err
		}
	}
}

// toEnd reads the padding after an archive's end. So the reader reaches its end,
// and gzip checks its checksum.
func (x *extraction) toEnd(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxPadding+1))
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	if n > maxPadding {
		return fmt.Errorf("%w: more than %d bytes after the end of the archive", ErrLimit, maxPadding)
	}
	return nil
}

// maxPadding bounds the bytes after the end of an archive. tar fills its last
// record, which has 10 KiB by default.
const maxPadding = 4 << 20

// tarBlock is the block size of tar archives, in bytes.
const tarBlock = 512

// isSparse reports whether the archive has fewer bytes of a file than its size.
func isSparse(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (x *extraction) one(h *tar.Header, r io.Reader) error {
	name, err := x.clean(strings.TrimSuffix(h.Name, "/"))
	if err != nil {
		if strings.Trim(h.Name, "/") == "" && h.Typeflag == tar.TypeDir {
			return nil
		}
		return fmt.Errorf("archive: %w", err)
	}
	if x.lim.Depth > 0 && strings.Count(name, "/") >= x.lim.Depth {
		return fmt.Errorf("%w: archive: %s is deeper than %d directories", ErrLimit, Show(name), x.lim.Depth)
	}
	if err := x.most(x.entries); err != nil {
		return err
	}
	if name == "." {
		return x.skip(h)
	}
	x.entries++
	if x.lim.Only != nil && !x.lim.Only(name) {
		return fmt.Errorf("%w: archive: %s was not requested", ErrName, Show(name))
	}
	d := x.into
	if h.Typeflag == tar.TypeDir {
		return d.mkdirAll(name, x.making)
	}
	if err := x.most(x.counts.total()); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		if x.lim.Bytes > 0 && (h.Size > x.lim.Bytes || x.counts.Bytes+x.skipped > x.lim.Bytes-h.Size) {
			return fmt.Errorf("%w: archive: the files have more than %d bytes", ErrLimit, x.lim.Bytes)
		}
		x.counts.Files++
		x.counts.Bytes += h.Size
		return x.file(name, h, r)
	case tar.TypeSymlink:
		if len(h.Linkname) > MaxName || h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) {
			return fmt.Errorf("%w: archive: target of link %s", ErrName, Show(name))
		}
		x.counts.Links++
		if err := x.makeRoom(name); err != nil {
			return err
		}
		if err := d.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return d.own(name)
	case tar.TypeLink:
		target, err := x.clean(h.Linkname)
		if err != nil {
			return fmt.Errorf("archive: hard link %s: %w", Show(name), err)
		}
		x.counts.Links++
		if err := x.makeRoom(name); err != nil {
			return err
		}
		if err := d.root.Link(target, name); err != nil {
			return fmt.Errorf("%w: archive: hard link %s to %s, which must come before it: %w", ErrName, Show(name), Show(target), err)
		}
		return nil
	}
	x.counts.Skipped++
	return x.skip(h)
}

// skip counts the content of an entry that is left out, which is read all the same.
func (x *extraction) skip(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil // they have none, whatever their size says
	}
	if x.lim.Bytes > 0 && (h.Size > x.lim.Bytes || x.counts.Bytes+x.skipped > x.lim.Bytes-h.Size) {
		return fmt.Errorf("%w: archive: the files, with those that are left out, have more than %d bytes", ErrLimit, x.lim.Bytes)
	}
	x.skipped += h.Size
	return nil
}

// most returns an error if the archive may have no more than n files.
func (x *extraction) most(n int) error {
	if x.lim.Files > 0 && n >= x.lim.Files {
		return fmt.Errorf("%w: archive: more than %d files and directories", ErrLimit, x.lim.Files)
	}
	return nil
}

// making counts a directory that is about to be created. One name may imply
// [MaxDepth] directories, so a bound on entries does not bound them.
func (x *extraction) making() error {
	if err := x.most(x.counts.total()); err != nil {
		return err
	}
	x.counts.Directories++
	return nil
}

func (x *extraction) clean(name string) (string, error) {
	if x.lim.AnyBytes {
		return clean(name)
	}
	return Clean(name)
}

// makeRoom creates the directories above a name, and removes an earlier file of
// that name in the archive.
func (x *extraction) makeRoom(name string) error {
	if err := x.into.mkdirAll(path.Dir(name), x.making); err != nil {
		return err
	}
	if err := x.into.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: archive: %s is both a file and a directory: %w", ErrType, Show(name), err)
	}
	return nil
}

func (x *extraction) file(name string, h *tar.Header, r io.Reader) error {
	if err := x.makeRoom(name); err != nil {
		return err
	}
	f, err := x.into.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := copySparse(x.ctx, f, r); err != nil {
		return fmt.Errorf("extract %s: %w", Show(name), err)
	}
	return x.into.finish(f, fs.FileMode(h.Mode).Perm(), h.ModTime)
}

// copySparse copies r to a new file, and leaves holes for runs of zeros.
func copySparse(ctx context.Context, f *os.File, r io.Reader) error {
	buf := make([]byte, 64<<10)
	zero := make([]byte, len(buf))
	var at int64
	hole := false
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf)
		if hole = n == len(buf) && bytes.Equal(buf, zero); !hole && n > 0 {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			// A truncated reader returns an error of its own.
			return f.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// A ratioReader fails if it returns too many bytes for the bytes that it
// consumes.
type ratioReader struct {
	r     io.Reader
	in    *countingReader
	out   int64
	ratio int64
}

func (z *ratioReader) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	z.out += int64(n)
	if z.ratio > 0 && z.out > ratioFree && z.out/z.ratio > z.in.n {
		return 0, fmt.Errorf("%w: archive: its content is more than %d times larger than the archive", ErrLimit, z.ratio)
	}
	return n, err
}

// Export writes everything below d as a tar archive. It leaves out files that are
// not regular files, directories or links. A file that cannot be read is an
// error. It checks lim before it writes anything. The error wraps [ErrLimit].
func (d *Dir) Export(ctx context.Context, w io.Writer, lim Limits) (Counts, error) {
	return d.ExportOnly(ctx, w, lim, func(string) bool { return true })
}

// ExportOnly is Export of the files for whose names only returns true.
func (d *Dir) ExportOnly(ctx context.Context, w io.Writer, lim Limits, only func(name string) bool) (Counts, error) {
	if lim.Files == 0 {
		lim.Files = int(^uint(0) >> 1)
	}
	var total int64
	err := d.Walk(ctx, lim.Files, func(e *Entry) error {
		if !only(e.Path) {
			return nil
		}
		if e.Mode.IsRegular() {
			total += e.Size
			if lim.Bytes > 0 && (total < 0 || total > lim.Bytes) {
				return fmt.Errorf("%w: with %s of %d bytes, the files have more than %d bytes, including holes", ErrLimit, Show(e.Path), e.Size, lim.Bytes)
			}
		}
		return nil
	})
	if err != nil {
		return Counts{}, err
	}
	x := exporting{d: d, w: tar.NewWriter(w)}
	err = d.Walk(ctx, lim.Files, func(e *Entry) error {
		if !only(e.Path) {
			return nil
		}
		return x.one(e)
	})
	if err != nil {
		return x.counts, err
	}
	return x.counts, x.w.Close()
}

type exporting struct {
	d      *Dir
	w      *tar.Writer
	counts Counts
}

func (x *exporting) one(e *Entry) error {
	h := &tar.Header{
		Name: e.Path, Mode: int64(e.Mode.Perm()), ModTime: e.Modified, Format: tar.FormatPAX,
		Uname: "user", Gname: "user", Uid: 1000, Gid: 1000,
	}
	switch {
	case e.Mode.IsDir():
		x.counts.Directories++
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		return x.w.WriteHeader(h)
	case e.Mode.Type() == fs.ModeSymlink:
		target, err := x.d.root.Readlink(e.Path)
		if err != nil {
			return skipGone(err)
		}
		x.counts.Links++
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return x.w.WriteHeader(h)
	case !e.Mode.IsRegular():
		x.counts.Skipped++
		return nil
	}
	f, fi, err := x.d.openNoLink(e.Path)
	if err != nil {
		return skipGone(err)
	}
	defer f.Close()
	x.counts.Files++
	x.counts.Bytes += fi.Size()
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if err := x.w.WriteHeader(h); err != nil {
		return err
	}
	// A file that grows is truncated, and a file that shrinks is padded with
	// zeros. So the archive stays valid while a program writes.
	n, err := io.Copy(x.w, io.LimitReader(f, fi.Size()))
	if err != nil {
		return err
	}
	_, err = io.CopyN(x.w, zeros{}, fi.Size()-n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// skipGone drops errors about a file that was removed or replaced meanwhile.
func skipGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrType) {
		return nil
	}
	return err
}
