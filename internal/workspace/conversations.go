package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Conversations configure directories that mcp-code-runner names: by the SHA-256
// of a conversation's name and a secret, in hexadecimal. Its documentation says
// 64 digits, but the program used the first 16. An existing directory of 16
// digits stays in use, a new directory has 64, and either name finds it.
type Conversations struct {
	// Secret is the FILE_SECRET of that server.
	Secret string
	// Principal owns the conversations. Workspaces of other principals have
	// normal IDs.
	Principal sandbox.Principal
}

// shortID is the number of digits that mcp-code-runner used.
const shortID = 16

// OpenConversations is [Open] for a directory that mcp-code-runner has filled, or
// that has its layout.
func OpenConversations(path string, c Conversations) (*Set, error) {
	return open(&Set{path: path, theirs: &c})
}

// Conversation returns the ID of a conversation, which never changes, as
// mcp-code-runner computes it. ok is false for workspaces of other principals.
func (s *Set) Conversation(p sandbox.Principal, name string) (id ID, ok bool) {
	if s.theirs == nil || s.theirs.Principal != p {
		return "", false
	}
	sum := sha256.Sum256([]byte(name + s.theirs.Secret))
	id = ID(hex.EncodeToString(sum[:]))
	if found, ok := s.Find(string(id)); ok {
		return found, true
	}
	return id, true
}

// valid reports whether id may name a directory of the set.
func (s *Set) valid(id ID) bool {
	return ValidID(string(id)) || s.theirs != nil && isShort(string(id))
}

func isShort(text string) bool {
	return len(text) == shortID && strings.Trim(text, "0123456789abcdef") == ""
}

// Find returns the workspace of a conversation by either form of its ID, if its
// directory exists. The ID alone gives the right to read it.
func (s *Set) Find(text string) (ID, bool) {
	if s.theirs == nil || !s.valid(ID(text)) {
		return "", false
	}
	if s.isDir(text) {
		return ID(text), true
	}
	if !isShort(text) {
		return ID(text[:shortID]), s.isDir(text[:shortID])
	}
	// The text has only hexadecimal digits, so it has no special characters of a
	// pattern.
	matches, err := filepath.Glob(filepath.Join(s.path, text+"*"))
	if err != nil || len(matches) != 1 || !ValidID(filepath.Base(matches[0])) {
		return "", false
	}
	return ID(filepath.Base(matches[0])), true
}

// isDir reports whether the set has a directory of that name. It also returns
// true after an error other than "not found", so that the later use reports the
// error.
func (s *Set) isDir(name string) bool {
	info, err := os.Lstat(filepath.Join(s.path, name))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.IsDir()
}
