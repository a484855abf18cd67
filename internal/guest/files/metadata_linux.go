package files

import (
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// attributePrefix begins the names of the extended attributes that hold the
	// metadata of E2B's clients.
	attributePrefix = "user.e2b."
	maxAttribute    = 255 // bytes of an attribute's name, on Linux
	// maxMetadata bounds the metadata of a file in bytes, as at E2B: the
	// attributes' names and values.
	maxMetadata = 4096
	// maxAttributes bounds the bytes of all attributes' names, on Linux.
	maxAttributes = 64 << 10
)

// metadataOf returns the metadata that the headers of a write set.
func metadataOf(h http.Header) (map[string]string, error) {
	var all map[string]string
	size := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, guestapi.MetadataPrefix)
		if !ok || key == "" {
			continue
		}
		key = strings.ToLower(key)
		if len(attributePrefix)+len(key) > maxAttribute {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "metadata: the key %.20s… is longer than %d bytes", key, maxAttribute-len(attributePrefix))
		}
		if !isPrintable(key) || !isPrintable(values[0]) {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "metadata: %.40q has characters other than printable ASCII", key)
		}
		if size += len(attributePrefix) + len(key) + len(values[0]); size > maxMetadata {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "metadata: is longer than %d bytes", maxMetadata)
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[key] = values[0]
	}
	return all, nil
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// readMetadata returns the metadata of a file, or nil. It leaves out texts that
// are not UTF-8, and attributes beyond maxMetadata, which programs may set.
func readMetadata(name string) map[string]string {
	var buf [maxMetadata]byte
	var all map[string]string
	room := maxMetadata
	for _, attribute := range attributes(func(p []byte) (int, error) { return unix.Listxattr(name, p) }) {
		n, err := unix.Getxattr(name, attribute, buf[:])
		if err != nil {
			continue
		}
		key, value := attribute[len(attributePrefix):], string(buf[:n])
		size := len(attribute) + n
		if size > room || !utf8.ValidString(key) || !utf8.ValidString(value) {
			continue
		}
		room -= size
		if all == nil {
			all = make(map[string]string)
		}
		all[key] = value
	}
	return all
}

// attributes returns the names of a file's attributes that are metadata.
func attributes(list func([]byte) (int, error)) []string {
	var small [512]byte
	buf := small[:]
	n, err := list(buf)
	if err == unix.ERANGE {
		buf = make([]byte, maxAttributes)
		n, err = list(buf)
	}
	if err != nil || n == 0 { // no attributes, or a file system without them
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, attributePrefix) {
			names = append(names, name)
		}
	}
	return names
}

// setMetadata replaces the metadata of a file.
func setMetadata(f *os.File, metadata map[string]string) error {
	fd := int(f.Fd())
	for _, name := range attributes(func(p []byte) (int, error) { return unix.Flistxattr(fd, p) }) {
		if _, stays := metadata[name[len(attributePrefix):]]; stays {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && err != unix.ENODATA {
			return err
		}
	}
	for key, value := range metadata {
		switch err := unix.Fsetxattr(fd, attributePrefix+key, []byte(value), 0); err {
		case nil:
		case unix.EOPNOTSUPP:
			return rpc.Errorf(guestapi.CodeUnimplemented, "%s: is on a file system without metadata of files; write it without metadata", f.Name())
		case unix.E2BIG:
			return unix.ENOSPC
		default:
			return err
		}
	}
	return nil
}
