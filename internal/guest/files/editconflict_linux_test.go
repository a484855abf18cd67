package files

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// TestEditConflict: a file that a program changes between the reading and the writing
// of an edit keeps the program's change.
func TestEditConflict(t *testing.T) {
	s := New(account.New(account.Config{AsSelf: true}), nil, false, nil)
	defer s.Close()
	c := &caller{Account: &account.Account{UID: uint32(os.Getuid()), Home: "/"}}
	const old, theirs = "old contents", "new contents"
	for what, change := range map[string]func(name string) error{
		"nothing":     func(string) error { return nil },
		"overwritten": func(name string) error { return os.WriteFile(name, []byte(theirs), 0o600) },
		"with its old time": func(name string) error {
			info, err := os.Stat(name)
			if err == nil {
				err = os.WriteFile(name, []byte(theirs), 0o600)
			}
			if err == nil {
				err = os.Chtimes(name, time.Time{}, info.ModTime())
			}
			return err
		},
		"replaced": func(name string) error {
			if err := os.WriteFile(name+"2", []byte(theirs), 0o600); err != nil {
				return err
			}
			return os.Rename(name+"2", name)
		},
		"appended": func(name string) error {
			f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(theirs)
				f.Close()
			}
			return err
		},
		"truncated": func(name string) error { return os.Truncate(name, 3) },
		"removed":   os.Remove,
	} {
		name := t.TempDir() + "/f"
		if err := os.WriteFile(name, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		target, err := openToEdit(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.read(); err != nil {
			t.Fatal(err)
		}
		if err := change(name); err != nil {
			t.Fatal(err)
		}
		want, _ := os.ReadFile(name)
		b, err := s.receive(bytes.NewReader([]byte("edited")), target.dir, name)
		if err != nil {
			t.Fatal(err)
		}
		err = target.write(s, c, b)
		b.close()
		target.f.Close()
		if what == "nothing" {
			want = []byte("edited")
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		} else if err == nil || rpc.Wire(err).Code != guestapi.CodeAborted {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
		if got, _ := os.ReadFile(name); !bytes.Equal(got, want) {
			t.Errorf("%s: the file is %q, want %q", what, got, want)
		}
	}
}
