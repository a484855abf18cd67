package request

import (
	"errors"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAddHeaderRules(t *testing.T) {
	value := sandbox.NewSecretValue("correct horse")
	key := sandbox.Secret{Name: "KEY", Hosts: "*.example.com:443", Value: value}
	own := sandbox.Secret{Name: "OWN", Hosts: "api.example.com:443", Headers: []string{"X-Own"}, Value: value}
	for what, c := range map[string]struct {
		network             sandbox.Network
		host, header, value string
		says                string
	}{
		"allowed by name":          {"api.example.com", "api.example.com", "X-Mine", "x", ""},
		"allowed by everything":    {"internet", "api.example.com", "X-Mine", "x", ""},
		"another host":             {"www.example.com", "api.example.com", "X-Mine", "x", "does not allow api.example.com:443"},
		"another port":             {"api.example.com:80", "api.example.com", "X-Mine", "x", "does not allow api.example.com:443"},
		"no network":               {"none", "api.example.com", "X-Mine", "x", "does not allow api.example.com:443"},
		"a secret's header":        {"internet", "api.example.com", "Authorization", "x", "secret KEY uses the header Authorization"},
		"a secret's own header":    {"internet", "api.example.com", "x-own", "x", "secret OWN uses the header X-Own"},
		"elsewhere":                {"internet", "api.example.org", "Authorization", "x", ""},
		"with the secret":          {"internet", "api.example.com", "Authorization", "Bearer " + key.Placeholder(), ""},
		"the secret elsewhere":     {"internet", "api.example.org", "Authorization", "Bearer " + key.Placeholder(), "secret KEY may not be in the header Authorization of api.example.org"},
		"the secret in no header":  {"internet", "api.example.com", "X-Mine", key.Placeholder(), "secret KEY may not be in the header X-Mine"},
		"another secret of a host": {"internet", "api.example.com", "X-Own", key.Placeholder(), "secret KEY may not"},
	} {
		rule, err := sandbox.NewHeaderRule(c.host, c.header, c.value)
		if err != nil {
			t.Fatal(err)
		}
		all, err := AddHeaderRules(c.network, []sandbox.Secret{key, own}, []sandbox.Secret{rule})
		if c.says == "" {
			if err != nil || len(all) != 3 || !all[2].Always {
				t.Errorf("%s: %+v, %v", what, all, err)
			}
			continue
		}
		if !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), c.says) || sandbox.HintOf(err) == "" || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := AddHeaderRules("internet", nil, []sandbox.Secret{key}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a secret that is no rule: %v", err)
	}
	if all, err := AddHeaderRules(sandbox.NetworkNone, []sandbox.Secret{key}, nil); err != nil || len(all) != 1 {
		t.Errorf("without rules: %+v, %v", all, err)
	}
}
