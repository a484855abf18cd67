package image

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image/erofs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Names with which a layer removes files of lower layers.
const (
	whiteout       = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh." // of old storage drivers
)

// An unpacker unpacks layers into one EROFS image.
type unpacker struct {
	*tree
	w       *erofs.Writer
	limits  Limits
	entries int   // of all layers so far
	bytes   int64 // of the files of all layers so far
}

func newUnpacker(w *erofs.Writer, limits Limits) *unpacker {
	return &unpacker{tree: newTree(limits.Files, w.Drop), w: w, limits: limits}
}

// entriesPerFile is the number of entries that all layers may have for each file
// that the image may have. Layers replace each other's files.
const entriesPerFile = 4

// apply applies the next layer, an uncompressed tar archive. Its errors are of
// kind Invalid if the layer is wrong, and of kind Exhausted if it is too large.
func (u *unpacker) apply(r io.Reader) error {
	u.layer++
	archive := tar.NewReader(bufio.NewReaderSize(r, 64<<10))
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return drain(r)
		}
		if err != nil {
			return badArchive(err)
		}
		if u.entries++; u.entries > entriesPerFile*u.limits.Files {
			return tooManyFiles(u.limits.Files)
		}
		if err := u.entry(h, archive); err != nil {
			return err
		}
	}
}

// drain reads the data after an archive's end, because the digest covers all
// data.
func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// badArchive explains an error of reading an archive. Errors of the underlying
// reader already have a kind.
func badArchive(err error) error {
	if errors.As(err, new(*sandbox.Error)) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return sandbox.Errorf(sandbox.Invalid, "the archive ends too early")
	}
	return sandbox.Errorf(sandbox.Invalid, "not a tar archive: %w", err)
}

// entry applies one entry of a layer.
func (u *unpacker) entry(h *tar.Header, data io.Reader) error {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeChar, tar.TypeBlock:
		return nil // a sandbox has only its own devices
	}
	names, err := split(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 { // the root itself
		if h.Typeflag != tar.TypeDir {
			return sandbox.Errorf(sandbox.Invalid, "the root is not a directory")
		}
		return u.describe(u.root, h, erofs.ModeDir)
	}
	name := names[len(names)-1]
	if strings.HasPrefix(name, whiteout) {
		return u.whiteout(names[:len(names)-1], name)
	}
	dir, err := u.dir(names[:len(names)-1], true)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		n := dir.children[name].node
		if n == nil || !n.IsDir() {
			n = newDir(0)
		}
		if err := u.describe(n, h, erofs.ModeDir); err != nil {
			return err
		}
		return u.replace(dir, name, n)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.file(dir, name, h, data)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxPath || strings.ContainsRune(h.Linkname, 0) {
			return sandbox.Errorf(sandbox.Invalid, "the link %s leads to %s", quote(h.Name), quote(h.Linkname))
		}
		n := &node{Node: erofs.Node{Target: h.Linkname}}
		if err := u.describe(n, h, erofs.ModeSymlink); err != nil {
			return err
		}
		return u.replace(dir, name, n)
	case tar.TypeLink:
		return u.link(dir, name, h)
	case tar.TypeFifo:
		n := &node{}
		if err := u.describe(n, h, erofs.ModeFIFO); err != nil {
			return err
		}
		return u.replace(dir, name, n)
	}
	return sandbox.Errorf(sandbox.Invalid, "%s has the type %s, which layers cannot have", quote(h.Name), strconv.QuoteRune(rune(h.Typeflag)))
}

// whiteout removes files of lower layers.
func (u *unpacker) whiteout(parent []string, name string) error {
	dir, err := u.dir(parent, false)
	if err != nil || dir == nil {
		return err
	}
	hidden := strings.TrimPrefix(name, whiteout)
	switch {
	case name == whiteoutOpaque:
		u.hideAll(dir)
	case strings.HasPrefix(name, whiteoutMeta):
	case hidden == "" || hidden == "." || hidden == "..":
		return sandbox.Errorf(sandbox.Invalid, "%s is a whiteout without a file name", quote(name))
	default:
		u.hide(dir, hidden)
	}
	return nil
}

// file adds a regular file.
func (u *unpacker) file(dir *node, name string, h *tar.Header, data io.Reader) error {
	if h.Size < 0 || h.Size > u.limits.Bytes-u.bytes {
		return tooLarge(u.limits.Bytes)
	}
	u.bytes += h.Size
	n := &node{}
	if err := u.describe(n, h, erofs.ModeRegular); err != nil {
		return err
	}
	// Check whether the file may exist before its data is read.
	if err := u.replace(dir, name, n); err != nil {
		return err
	}
	var err error
	if n.Data, err = u.w.Add(data, h.Size); err != nil {
		return explainWrite(badData(err))
	}
	return nil
}

// badData distinguishes errors of the source archive from errors of the target
// disk.
func badData(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return badArchive(err)
	}
	return err
}

// link adds a hard link.
func (u *unpacker) link(dir *node, name string, h *tar.Header) error {
	names, err := split(h.Linkname)
	if err != nil {
		return err
	}
	missing := sandbox.Errorf(sandbox.Invalid, "%s is a hard link to %s, which is not a file", quote(h.Name), quote(h.Linkname))
	if len(names) == 0 {
		return missing
	}
	from, err := u.dir(names[:len(names)-1], false)
	if err != nil {
		return err
	}
	if from == nil {
		return missing
	}
	n := from.children[names[len(names)-1]].node
	if n == nil || n.IsDir() {
		return missing
	}
	return u.replace(dir, name, n)
}

// describe copies the metadata of a tar header to n.
func (u *unpacker) describe(n *node, h *tar.Header, kind uint16) error {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= math.MaxUint32 || int64(h.Gid) >= math.MaxUint32 {
		return sandbox.Errorf(sandbox.Invalid, "%s has the owner %d:%d, which is not valid", quote(h.Name), h.Uid, h.Gid)
	}
	n.Mode = kind | uint16(h.Mode&0o7777)
	n.UID, n.GID = uint32(h.Uid), uint32(h.Gid)
	if t := h.ModTime; !t.IsZero() && t.Before(farFuture) && t.After(longAgo) {
		n.Mtime, n.MtimeNsec = t.Unix(), uint32(t.Nanosecond())
	}
	return nil
}

// Times outside these bounds are ignored.
var (
	longAgo   = time.Unix(-1<<40, 0)
	farFuture = time.Unix(1<<40, 0)
)

func tooLarge(limit int64) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the image has more than %s of files", sandbox.FormatBytes(limit)),
		"use a smaller image, or raise images.max_size")
}

// quote quotes an untrusted text and limits its length.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return strconv.Quote(s)
}

// complete adds files that every sandbox needs and an image may lack: mount
// points, and files about the machine.
func (u *unpacker) complete() error {
	u.layer++
	for _, d := range []struct {
		name string
		mode uint16
	}{
		{"dev", 0o755}, {"etc", 0o755}, {"home", 0o755}, {"proc", 0o555}, {"run", 0o755}, {"sys", 0o555}, {"tmp", 0o1777},
	} {
		if u.root.children[d.name].node == nil {
			if err := u.put(u.root, d.name, newDir(d.mode)); err != nil {
				return err
			}
		}
	}
	if tmp := u.root.children["tmp"].node; tmp.IsDir() && len(tmp.children) == 0 {
		// gVisor would mount a file system in memory over an empty /tmp, and the
		// disk limit does not count it.
		if err := u.put(tmp, ".keep", &node{Node: erofs.Node{Mode: erofs.ModeRegular | 0o444}}); err != nil {
			return err
		}
	}
	etc, err := u.dir([]string{"etc"}, true)
	if err != nil {
		return err
	}
	for name, text := range machineFiles {
		if err := u.write(etc, name, text); err != nil {
			return err
		}
	}
	return u.accounts(etc)
}

// write adds a file with the given text.
func (u *unpacker) write(dir *node, name, text string) error {
	n := &node{Node: erofs.Node{Mode: erofs.ModeRegular | 0o644}}
	var err error
	if n.Data, err = u.w.Add(strings.NewReader(text), int64(len(text))); err != nil {
		return explainWrite(err)
	}
	return u.replace(dir, name, n)
}

// maxAccounts bounds the account files to which an account is added, in bytes.
const maxAccounts = 1 << 20

// accounts adds the user that runs programs, unless the name or the number is
// taken. Programs look up their own user.
func (u *unpacker) accounts(etc *node) error {
	for name, line := range map[string]string{
		"passwd": "user:x:1000:1000::/home/user:/bin/sh\n", "group": "user:x:1000:\n",
	} {
		old := etc.children[name].node
		text := ""
		switch {
		case old == nil:
			text = map[string]string{"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n"}[name]
		case old.Mode&erofs.ModeType != erofs.ModeRegular || old.Data.Size > maxAccounts:
			continue // keep the image's file, whatever it is
		default:
			data, err := u.w.Read(old.Data)
			if err != nil {
				return err
			}
			text = string(data)
		}
		if hasAccount(text) {
			continue
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if err := u.write(etc, name, text+line); err != nil {
			return err
		}
		if old != nil {
			n := &etc.children[name].Node
			n.Mode, n.UID, n.GID, n.Mtime, n.MtimeNsec = old.Mode, old.UID, old.GID, old.Mtime, old.MtimeNsec
		}
	}
	return nil
}

// hasAccount reports whether a passwd or group file has the user's name or
// number.
func hasAccount(text string) bool {
	for line := range strings.Lines(text) {
		f := strings.SplitN(line, ":", 4)
		if len(f) == 4 && (f[0] == sandbox.User || f[2] == strconv.Itoa(sandbox.UserUID)) {
			return true
		}
	}
	return false
}

// machineFiles are the files of /etc that describe the machine. The image's own
// files describe the machine that built it.
var machineFiles = map[string]string{
	"hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"hostname":    "sandbox\n",
	"resolv.conf": "",
}
