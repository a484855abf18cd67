package files

import (
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A caller is the user of a request.
type caller struct {
	*account.Account
	// rootToo gives the caller root's rights where its own do not suffice. E2B's
	// agent acts as root, and gives the user what it makes. A client of E2B's
	// protocol may name root as its user, too, so this is no further power.
	rootToo bool
}

func (s *Server) callerOf(r *http.Request, user string) (*caller, error) {
	a, err := s.accounts.Find(user)
	if err != nil {
		return nil, err
	}
	return &caller{a, a.UID != 0 && !rpc.Extended(r)}, nil
}

// as calls f with the rights of the caller's user. If they do not suffice, as
// may call f again with root's rights: f then gives what it makes to owner, which
// is nil otherwise.
func (s *Server) as(c *caller, f func(owner *account.Account) error) error {
	err := s.accounts.As(c.Account, func() error { return f(nil) })
	if err == nil || !c.rootToo || rpc.Wire(err).Code != guestapi.CodePermissionDenied {
		return err
	}
	root, err := s.accounts.Find(account.RootName)
	if err != nil {
		return err
	}
	return s.accounts.As(root, func() error { return f(c.Account) })
}

// giver returns the function that gives files to owner, or nil without one.
func giver(owner *account.Account) func(name string) error {
	if owner == nil {
		return nil
	}
	return func(name string) error { return unix.Lchown(name, int(owner.UID), int(owner.GID)) }
}
