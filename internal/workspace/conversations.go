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

// Conversations are directories as mcp-code-runner names them: by the SHA-256
// of a conversation's name and a secret, in hexadecimal. Its documentation says
// all 64 digits, and the program took the first 16. Here a directory of 16
// digits goes on where there is one, a new one has all of them, and either name
// finds it.
type Conversations struct {
	// Secret is what that server calls FILE_SECRET.
	Secret string
	// Principal is whose they are; workspaces of others have names as ever.
	Principal sandbox.Principal
}

// shortID is how many digits the program took.
const shortID = 16

// OpenConversations is [Open] for a directory that mcp-code-runner has filled,
// or that is to be as if it had.
func OpenConversations(path string, c Conversations) (*Set, error) {
	return open(&Set{path: path, theirs: &c})
}

// Conversation returns the ID of a conversation, which is always the same, as
// mcp-code-runner has it. ok is false for workspaces of other principals.
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

// Find returns the workspace of conversations that a text names, in either
// form, if its directory is there. Whoever knows the text may read it.
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
	// Nothing but digits is in the pattern.
	matches, err := filepath.Glob(filepath.Join(s.path, text+"*"))
	if err != nil || len(matches) != 1 || !ValidID(filepath.Base(matches[0])) {
		return "", false
	}
	return ID(filepath.Base(matches[0])), true
}

// isDir reports whether the set has a directory of that name. What cannot be
// looked at is taken to be there, for the error to come where it is used.
func (s *Set) isDir(name string) bool {
	info, err := os.Lstat(filepath.Join(s.path, name))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.IsDir()
}
