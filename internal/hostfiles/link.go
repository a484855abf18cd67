package hostfiles

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// stays reports whether a link at name leads to a file in the same tree. It
// assumes that all other links of the tree do, and that no parent directory of
// name is a link.
func stays(name, target string) bool {
	down := false
	for part := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		switch part {
		case "", ".":
		case "..":
			// After the name of a link, ".." would start from the link's target.
			if down {
				return false
			}
		default:
			down = true
		}
	}
	return !path.IsAbs(target) && !strings.ContainsRune(target, 0) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

func isLink(dir *safepath.Dir, name string) bool {
	fi, err := dir.Lstat(name)
	return err == nil && fi.Mode().Type() == fs.ModeSymlink
}

// belowLink reports whether a directory between base and name is a link. An
// earlier copy may have left such a link.
func belowLink(dir *safepath.Dir, base, name string) bool {
	for at := path.Dir(name); at != base && at != "."; at = path.Dir(at) {
		if isLink(dir, at) {
			return true
		}
	}
	return false
}
