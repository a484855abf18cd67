package adminapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// maxName bounds the name of an account, in bytes.
const maxName = 300

// checkName checks the name of a group or a principal.
func checkName(argument, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '*' }) {
		return sandbox.Errorf(sandbox.Invalid, "%s: %.50q is not a name: it must have 1 to %d printable characters, and no *", argument, name, maxName)
	}
	return nil
}

func (s *Server) groups(r *http.Request, _ auth.Identity) (int, any, error) {
	list, err := s.backend.Groups(r.Context())
	if list == nil {
		list = []usage.Group{}
	}
	return http.StatusOK, map[string]any{"groups": list}, err
}

func (s *Server) addMembers(r *http.Request, _ auth.Identity) (int, any, error) {
	var in struct {
		Principals []sandbox.Principal `json:"principals"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if len(in.Principals) == 0 {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "principals: must have one or more")
	}
	if err := checkMembers(r, in.Principals); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.backend.AddMembers(r.Context(), r.PathValue("group"), in.Principals)
}

func checkMembers(r *http.Request, members []sandbox.Principal) error {
	for _, p := range members {
		if err := checkName("principals", string(p)); err != nil {
			return err
		}
	}
	return checkName("group", r.PathValue("group"))
}

func (s *Server) removeMembers(r *http.Request, _ auth.Identity) (int, any, error) {
	var members []sandbox.Principal
	for _, p := range r.URL.Query()["principal"] {
		members = append(members, sandbox.Principal(p))
	}
	if len(members) == 0 { // none would remove the group
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "principal: name one or more members")
	}
	if err := checkMembers(r, members); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.backend.RemoveMembers(r.Context(), r.PathValue("group"), members)
}

func (s *Server) removeGroup(r *http.Request, _ auth.Identity) (int, any, error) {
	if err := checkName("group", r.PathValue("group")); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.backend.RemoveMembers(r.Context(), r.PathValue("group"), nil)
}

func (s *Server) limits(r *http.Request, _ auth.Identity) (int, any, error) {
	list, err := s.backend.Limits(r.Context())
	if list == nil {
		list = []usage.AccountLimit{}
	}
	return http.StatusOK, map[string]any{"limits": list}, err
}

// anyPrincipal is the account of limits for each principal without its own.
const anyPrincipal = "*"

// account returns the account that a group or a principal names.
func account(group, principal string) (usage.AccountLimit, error) {
	switch {
	case (group == "") == (principal == ""):
		return usage.AccountLimit{}, sandbox.Errorf(sandbox.Invalid, "principal: give a principal or a group, and not both")
	case group != "":
		return usage.AccountLimit{Group: group}, checkName("group", group)
	case principal == anyPrincipal:
		return usage.AccountLimit{Principal: anyPrincipal}, nil
	}
	return usage.AccountLimit{Principal: sandbox.Principal(principal)}, checkName("principal", principal)
}

func (s *Server) setLimits(r *http.Request, _ auth.Identity) (int, any, error) {
	var in struct {
		Group     string                `json:"group"`
		Principal string                `json:"principal"`
		Limits    map[usage.Limit]int64 `json:"limits"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	of, err := account(in.Group, in.Principal)
	if err != nil {
		return 0, nil, err
	}
	var list []usage.AccountLimit
	for _, l := range usage.LimitNames() {
		if n, ok := in.Limits[l]; ok {
			if n < 0 {
				return 0, nil, sandbox.Errorf(sandbox.Invalid, "limits: %s is %d, which is negative", l, n)
			}
			of.Limit, of.Value = l, n
			list = append(list, of)
		}
	}
	if len(list) != len(in.Limits) || len(list) == 0 {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "limits: must have one or more of %v, and no other", usage.LimitNames())
	}
	return http.StatusNoContent, nil, s.backend.SetLimits(r.Context(), list)
}

func (s *Server) removeLimits(r *http.Request, _ auth.Identity) (int, any, error) {
	q := r.URL.Query()
	of, err := account(q.Get("group"), q.Get("principal"))
	if err != nil {
		return 0, nil, err
	}
	var limits []usage.Limit
	for _, name := range q["limit"] {
		if !slices.Contains(usage.LimitNames(), usage.Limit(name)) {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "limit: %.50q is not one of %v", name, usage.LimitNames())
		}
		limits = append(limits, usage.Limit(name))
	}
	return http.StatusNoContent, nil, s.backend.RemoveLimits(r.Context(), of, limits)
}

// Bounds of a list of runs.
const (
	usualRuns = 100
	maxRuns   = 1000
)

// runs answers with the caller's runs. An operator may ask for those of others, without
// their programs.
func (s *Server) runs(r *http.Request, id auth.Identity) (int, any, error) {
	v := r.URL.Query()
	known := []string{"principal", "sandbox_id", "label", "verdict", "since", "until", "limit"}
	for name, values := range v {
		if !slices.Contains(known, name) || len(values) != 1 {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "there is no parameter %.50q, or it is there twice; the parameters are %s", name, strings.Join(known, ", "))
		}
	}
	if !id.Reads(auth.ScopeRun) {
		return 0, nil, sandbox.Errorf(sandbox.Forbidden, "the token lacks the scope run")
	}
	q := Query{Principal: id.Principal, SandboxID: sandbox.CanonicalID(v.Get("sandbox_id")), Label: v.Get("label"), Verdict: sandbox.VerdictCode(v.Get("verdict")), Limit: usualRuns}
	if p := v.Get("principal"); p != "" && sandbox.Principal(p) != id.Principal {
		if !id.Can(auth.ScopeOperate) {
			return 0, nil, sandbox.Errorf(sandbox.Forbidden, "principal: the token lacks the scope operate")
		}
		q.Principal = sandbox.Principal(p)
		if p == anyPrincipal {
			q.Principal = ""
		}
	}
	if q.Verdict != "" && !slices.Contains(sandbox.VerdictCodes(), q.Verdict) {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "verdict: %.50q is not one of %v", q.Verdict, sandbox.VerdictCodes())
	}
	for name, t := range map[string]*time.Time{"since": &q.Started, "until": &q.Until} {
		if text := v.Get(name); text != "" {
			var err error
			if *t, err = usage.ParseTime(text); err != nil {
				return 0, nil, sandbox.Errorf(sandbox.Invalid, "%s: %w", name, err)
			}
		}
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxRuns {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "limit: %.50q is not between 1 and %d", text, maxRuns)
		}
		q.Limit = n
	}
	list, err := s.backend.Runs(r.Context(), q)
	if list == nil {
		list = []Run{}
	}
	for i := range list {
		if list[i].Principal != id.Principal {
			list[i].Program = "" // code is for its principal only
		}
	}
	return http.StatusOK, map[string]any{"runs": list}, err
}
