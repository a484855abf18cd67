package app

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/statedir"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Accounts are the groups and limits of a state directory. Servers on the same directory
// obey every change at once.
type Accounts struct {
	store *store.Store
	audit *audit.Recorder

	closeAudit func() error
}

// AccountLimit is a limit of an account, and Group a group.
type (
	AccountLimit = store.AccountLimit
	Group        = store.Group
)

// AnyPrincipal is the account of limits for each principal without such a limit.
const AnyPrincipal = store.AnyPrincipal

// OpenAccounts opens the accounts of c's state directory. It needs no driver. The caller
// closes them.
func OpenAccounts(ctx context.Context, c config.Config) (*Accounts, error) {
	if err := statedir.Make(c.StateDir, store.FileName); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{Dir: c.StateDir})
	if err != nil {
		return nil, err
	}
	r, closing, err := openAudit(c, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Accounts{db, r, closing}, nil
}

// Close closes the store and the audit log.
func (a *Accounts) Close() error { return errors.Join(a.store.Close(), a.closeAudit()) }

// Usage returns what principals used.
func (a *Accounts) Usage(ctx context.Context, q usage.Query) ([]usage.Row, error) {
	return a.store.Usage(ctx, q)
}

// Limits returns all limits.
func (a *Accounts) Limits(ctx context.Context) ([]AccountLimit, error) { return a.store.Limits(ctx) }

// Groups returns all groups.
func (a *Accounts) Groups(ctx context.Context) ([]Group, error) { return a.store.Groups(ctx) }

func accountDetail(l AccountLimit) map[string]string {
	return map[string]string{"group": l.Group, "account": string(l.Principal)}
}

// SetLimits records limits of one account.
func (a *Accounts) SetLimits(ctx context.Context, list []AccountLimit) error {
	rec := audit.Record{Action: audit.LimitSet, Principal: administrator(ctx), Detail: accountDetail(list[0])}
	for _, l := range list {
		rec.Detail[string(l.Limit)] = strconv.FormatInt(l.Value, 10)
	}
	return a.audit.Do(ctx, rec, func(*audit.Record) error { return a.store.SetLimits(ctx, list) })
}

// RemoveLimits removes limits of an account; none removes all. The error wraps
// [sandbox.NotFound] if there was none.
func (a *Accounts) RemoveLimits(ctx context.Context, of AccountLimit, limits []usage.Limit) error {
	rec := audit.Record{Action: audit.LimitRemove, Principal: administrator(ctx), Detail: accountDetail(of)}
	for _, l := range limits {
		rec.Detail[string(l)] = "removed"
	}
	return a.audit.Do(ctx, rec, func(*audit.Record) error {
		n, err := a.store.RemoveLimits(ctx, of, limits)
		if err == nil && n == 0 {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the account has no such limit"), "list limits with glovebox limit list")
		}
		return err
	})
}

func groupRecord(ctx context.Context, action audit.Action, group string, members []sandbox.Principal) audit.Record {
	var names []string
	for _, p := range members {
		names = append(names, string(p))
	}
	return audit.Record{Action: action, Principal: administrator(ctx), Detail: map[string]string{"group": group, "members": strings.Join(names, " ")}}
}

// AddMembers adds principals to a group, which they make.
func (a *Accounts) AddMembers(ctx context.Context, group string, members []sandbox.Principal) error {
	return a.audit.Do(ctx, groupRecord(ctx, audit.GroupAdd, group, members), func(*audit.Record) error {
		return a.store.AddMembers(ctx, group, members)
	})
}

// RemoveMembers removes principals from a group, or all with its limits. The error wraps
// [sandbox.NotFound] if none was in it.
func (a *Accounts) RemoveMembers(ctx context.Context, group string, members []sandbox.Principal) error {
	return a.audit.Do(ctx, groupRecord(ctx, audit.GroupRemove, group, members), func(*audit.Record) error {
		n, err := a.store.RemoveMembers(ctx, group, members)
		if err == nil && n == 0 {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no such group, or none of these is in it"), "list groups with glovebox group list")
		}
		return err
	})
}

// claimGroups records the groups that the issuer claims for a principal.
func (s *System) claimGroups(ctx context.Context, p sandbox.Principal, groups []string) error {
	added, removed, err := s.store.ClaimGroups(ctx, p, groups)
	for action, list := range map[audit.Action][]string{audit.GroupAdd: added, audit.GroupRemove: removed} {
		for _, g := range list {
			s.audit.Note(ctx, audit.Record{Action: action, Principal: p, Detail: map[string]string{"group": g, "members": string(p), "by": "issuer"}}, nil)
		}
	}
	return err
}
