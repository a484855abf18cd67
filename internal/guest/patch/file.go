package patch

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The modes that Git knows.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeLink       = 0o120000
)

// A Side is a file before or after a change.
type Side struct {
	// Mode is zero if there is no file.
	Mode uint32
	// ID is the hexadecimal name of the contents as a blob of Git, or "" if the
	// contents are not known at all.
	ID string
	// Content is the contents, if HasContent is set. A link's contents are its
	// target.
	Content    []byte
	HasContent bool
	// Whole is set for a text that is too long to be compared by lines.
	Whole bool
}

// noID stands for a file that does not exist.
const noID = "0000000000000000000000000000000000000000"

func (s *Side) kind() uint32 { return s.Mode & 0o170000 }

func (s *Side) id() string {
	if s.Mode == 0 {
		return noID
	}
	return s.ID
}

// File writes the change of a file. Lines are written for a text whose contents are
// known on both sides. For other files, binaries writes what git apply needs, and
// otherwise a line says that they differ. File reports false, and writes nothing, if
// it cannot write what git apply needs.
func File(w *bytes.Buffer, name string, old, now Side, binaries bool) bool {
	if old.Mode != 0 && now.Mode != 0 && old.kind() != now.kind() {
		at := w.Len()
		if File(w, name, old, Side{}, binaries) && File(w, name, Side{}, now, binaries) {
			return true
		}
		w.Truncate(at)
		return false
	}
	unknown := old.id() == "" || now.id() == ""
	lines := isText(&old) && isText(&now)
	if binaries && (unknown || !lines && now.Mode != 0 && !now.HasContent) {
		return false
	}
	quoted := [2]string{quote("a/" + name), quote("b/" + name)}
	fmt.Fprintf(w, "diff --git %s %s\n", quoted[0], quoted[1])
	switch {
	case old.Mode == 0:
		fmt.Fprintf(w, "new file mode %o\n", now.Mode)
		quoted[0] = "/dev/null"
	case now.Mode == 0:
		fmt.Fprintf(w, "deleted file mode %o\n", old.Mode)
		quoted[1] = "/dev/null"
	case old.Mode != now.Mode:
		fmt.Fprintf(w, "old mode %o\nnew mode %o\n", old.Mode, now.Mode)
	}
	if unknown {
		fmt.Fprintf(w, "Binary files %s and %s differ\n", quoted[0], quoted[1])
		return true
	}
	if old.ID == now.ID && old.Mode != 0 && now.Mode != 0 {
		return true
	}
	fmt.Fprintf(w, "index %s..%s", old.id(), now.id())
	if old.Mode == now.Mode {
		fmt.Fprintf(w, " %o", now.Mode)
	}
	w.WriteByte('\n')
	switch {
	case lines && len(old.Content)+len(now.Content) == 0: // an empty file comes or goes
	case lines:
		for i, sign := range []string{"---", "+++"} {
			end := "\n"
			if strings.Contains(name, " ") && quoted[i] != "/dev/null" {
				end = "\t\n" // or patch takes a part for the time
			}
			fmt.Fprintf(w, "%s %s%s", sign, quoted[i], end)
		}
		unified(w, old.Content, now.Content)
	case binaries:
		literal(w, now.Content)
	default:
		fmt.Fprintf(w, "Binary files %s and %s differ\n", quoted[0], quoted[1])
	}
	return true
}

// isText reports whether a side can be shown as lines. A file that does not exist
// has none.
func isText(s *Side) bool {
	return s.Mode == 0 || s.HasContent && !s.Whole && IsText(s.Content)
}

// IsText reports whether contents are text: UTF-8 without NUL.
func IsText(b []byte) bool { return bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) }

// quote writes a name as Git does: in quotes, if it has bytes that are special.
func quote(name string) string {
	var b strings.Builder
	odd := false
	for i := range len(name) {
		c := name[i]
		if at := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); at >= 0 {
			b.WriteByte('\\')
			b.WriteByte("abtnvfr\"\\"[at])
		} else if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "\\%03o", c)
		} else {
			b.WriteByte(c)
			continue
		}
		odd = true
	}
	if !odd {
		return name
	}
	return `"` + b.String() + `"`
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// literal writes the contents of a file in Git's form for binary files: compressed,
// in base 85, at most 52 bytes in a line, whose length its first letter says.
func literal(w *bytes.Buffer, content []byte) {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(content) // a buffer takes everything
	_ = z.Close()
	fmt.Fprintf(w, "GIT binary patch\nliteral %d\n", len(content))
	for data := packed.Bytes(); len(data) > 0; {
		n := min(len(data), 52)
		if n <= 26 {
			w.WriteByte(byte('A' + n - 1))
		} else {
			w.WriteByte(byte('a' + n - 27))
		}
		for i := 0; i < n; i += 4 {
			var four [4]byte
			copy(four[:], data[i:n])
			v := binary.BigEndian.Uint32(four[:])
			var five [5]byte
			for k := 4; k >= 0; k-- {
				five[k] = digits[v%85]
				v /= 85
			}
			w.Write(five[:])
		}
		w.WriteByte('\n')
		data = data[n:]
	}
	w.WriteByte('\n')
}
