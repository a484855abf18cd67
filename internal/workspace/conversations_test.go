package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestConversations(t *testing.T) {
	dir := t.TempDir()
	secret := strings.Repeat("s", 32)
	s, err := OpenConversations(dir, Conversations{Secret: secret, Principal: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	sum := sha256.Sum256([]byte("session-123" + secret))
	full := hex.EncodeToString(sum[:])

	// A new conversation has the name of the documentation.
	id, ok := s.Conversation("theirs", "session-123")
	if string(id) != full || !ok {
		t.Errorf("ID %s; want %s", id, full)
	}
	if _, ok := s.Find(full); ok {
		t.Error("a conversation is found that is not there")
	}
	if made, err := s.Make(id); err != nil || !made {
		t.Fatalf("Make: %v, %v", made, err)
	}
	for _, name := range []string{full, full[:shortID]} {
		if found, ok := s.Find(name); !ok || found != id {
			t.Errorf("Find(%s): %s, %v; want %s", name, found, ok, id)
		}
	}

	// One that the program made goes on under the name that it has.
	sum = sha256.Sum256([]byte("old" + secret))
	old := hex.EncodeToString(sum[:])
	if err := os.Mkdir(filepath.Join(dir, old[:shortID]), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, old[:shortID], "data.csv"), []byte("1,2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if id, ok := s.Conversation("theirs", "old"); string(id) != old[:shortID] || !ok {
		t.Errorf("ID of one that is there: %s; want %s", id, old[:shortID])
	}
	for _, name := range []string{old, old[:shortID]} {
		id, ok := s.Find(name)
		if !ok {
			t.Errorf("Find(%s): nothing", name)
			continue
		}
		w, err := s.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := w.Read("data.csv")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "1,2" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}

	// Names that are none find nothing, whatever is there.
	if err := os.Mkdir(filepath.Join(dir, "0123456789abcde*"), 0o755); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	for _, name := range []string{"", "tmp", "secret", "..", "0123456789abcde*", strings.Repeat("*", shortID), old[:15], strings.ToUpper(full)} {
		if id, ok := s.Find(name); ok {
			t.Errorf("Find(%q): %s", name, id)
		}
	}
	// The names of another principal's workspaces are none of conversations.
	if id, ok := s.Conversation("other", "session-123"); ok {
		t.Errorf("another principal's ID is %s", id)
	}
	// An ordinary set knows no short names.
	plain, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Make(ID(old[:shortID])); err == nil {
		t.Error("an ordinary set takes a short name")
	}
}
