package e2bapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// secretInfo is a secret in E2B's format. It never has the value.
type secretInfo struct {
	SecretID  string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int64             `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// secretsOf returns the secrets that sandboxes of p use, by name. The server read them
// when it began, which is their time.
func (s *Server) secretsOf(p sandbox.Principal) []secretInfo {
	list := []secretInfo{}
	for _, secret := range s.opts.Secrets {
		if secret.UsedBy(p) {
			list = append(list, secretInfo{
				SecretID: secret.Name, Name: secret.Name, Version: 1, CreatedAt: s.began, UpdatedAt: s.began,
				Metadata: map[string]string{"hosts": string(secret.Hosts), "variable": secret.Name},
			})
		}
	}
	slices.SortFunc(list, func(a, b secretInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// secrets lists the secrets. The token of the next page is the last name of a page.
func (s *Server) secrets(r *http.Request, p sandbox.Principal) (int, any, error) {
	limit := maxPage
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "limit: %s is not a number between 1 and %d", short(text), maxPage)
		}
		limit = n
	}
	after := r.URL.Query().Get("nextToken")
	list := slices.DeleteFunc(s.secretsOf(p), func(i secretInfo) bool { return strings.Compare(i.Name, after) <= 0 })
	answer := page{items: list}
	if len(list) > limit {
		answer = page{items: list[:limit], next: list[limit-1].Name}
	}
	return http.StatusOK, answer, nil
}

func (s *Server) secret(r *http.Request, p sandbox.Principal) (int, any, error) {
	for _, i := range s.secretsOf(p) {
		if i.Name == r.PathValue("id") {
			return http.StatusOK, i, nil
		}
	}
	return 0, nil, sandbox.Errorf(sandbox.NotFound, "there is no secret %s", short(r.PathValue("id")))
}

// changeSecret refuses requests that make, change and remove secrets. A value without
// hosts could go anywhere, and E2B's request names none. It would also have to be
// stored, to outlive the server.
func (s *Server) changeSecret(*http.Request, sandbox.Principal) (int, any, error) {
	return 0, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "secrets are the operator's, who also names the hosts that receive them; this request names none"),
		"give the value to a sandbox for one host (network.rules with a header), or have the operator set the secret in the server's configuration")
}
