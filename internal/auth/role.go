package auth

import (
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Role is a name for a set of scopes.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"     // everything, and the administration of accounts
	RoleOperator Role = "operator"  // reads what concerns all principals, and changes nothing
	RoleMember   Role = "member"    // uses its own sandboxes and files
	RoleReadOnly Role = "read-only" // reads its own sandboxes and files
)

// Roles returns every role.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleMember, RoleReadOnly} }

// Scopes returns the scopes of a role. The error wraps [sandbox.Invalid] if there is no
// such role.
func (r Role) Scopes() ([]Scope, error) {
	switch r {
	case RoleAdmin:
		return []Scope{ScopeAdmin}, nil
	case RoleOperator:
		return []Scope{ScopeOperate}, nil
	case RoleMember:
		return []Scope{ScopeRun, ScopeFiles}, nil
	case RoleReadOnly:
		return []Scope{ScopeRead}, nil
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "role: %.40q is not a role", r), "use admin, operator, member or read-only")
}

// RoleOf returns the widest role that names of scopes give a part of.
func RoleOf(scopes []string) Role {
	has := func(s Scope) bool { return slices.Contains(scopes, string(s)) }
	switch {
	case has(ScopeAdmin):
		return RoleAdmin
	case has(ScopeOperate):
		return RoleOperator
	case has(ScopeRun) || has(ScopeFiles):
		return RoleMember
	}
	return RoleReadOnly
}
