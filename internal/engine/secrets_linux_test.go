package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func TestSecrets(t *testing.T) {
	d := &networkDriver{}
	key := sandbox.Secret{Name: "API_KEY", Hosts: "api.example.com:443", Value: sandbox.NewSecretValue("correct horse")}
	bobs := sandbox.Secret{Name: "BOBS", Hosts: "api.example.com:443", Value: sandbox.NewSecretValue("battery staple"), Principals: []sandbox.Principal{"bob"}}
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) {
		o.Driver, o.MaxNetwork, o.Secrets = d, "api.example.com", []sandbox.Secret{key, bobs}
	})
	// This driver's boxes do not say who signs, so they are of no use, and
	// nothing is left of them.
	_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Network: "api.example.com"})
	if err == nil || !strings.Contains(err.Error(), "who signs") {
		t.Errorf("without an authority: %v", err)
	}
	if len(d.secrets) != 1 || d.secrets[0].Name != "API_KEY" || d.secrets[0].Value.Reveal() != "correct horse" {
		t.Errorf("alice's box gets %+v", d.secrets)
	}
	if list, err := e.List(t.Context(), alice); err != nil || len(list) != 0 {
		t.Errorf("afterwards there are %+v, %v", list, err)
	}
	if _, err := e.Create(t.Context(), "bob", sandbox.CreateRequest{Network: "api.example.com"}); err == nil {
		t.Error("bob's box is of use")
	}
	if len(d.secrets) != 2 {
		t.Errorf("bob's box gets %+v", d.secrets)
	}
	env := guestlink.SecretEnv(e.secretsOf(alice, "api.example.com"))
	if env["API_KEY"] != key.Placeholder() || env["BOBS"] != "" || env["SSL_CERT_FILE"] == "" {
		t.Errorf("alice's programs have %v", env)
	}
	// Without a network there is nothing of it.
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); err != nil {
		t.Error(err)
	}
	if len(d.secrets) != 0 || len(guestlink.SecretEnv(e.secretsOf(alice, sandbox.NetworkNone))) != 0 {
		t.Errorf("without a network: %+v, %v", d.secrets, guestlink.SecretEnv(e.secretsOf(alice, sandbox.NetworkNone)))
	}
}

// nameOnly is a driver that says what it can, and nothing else.
type nameOnly struct {
	driver.Driver
	network bool
}

func (d nameOnly) Info() driver.Info {
	return driver.Info{Name: "name", Features: driver.Features{Network: d.network}}
}

func TestSecretsRefused(t *testing.T) {
	key := sandbox.Secret{Name: "API_KEY", Hosts: "api.example.com:443", Value: sandbox.NewSecretValue("correct horse")}
	for what, c := range map[string]struct {
		secrets []sandbox.Secret
		network bool
		most    sandbox.Network
		says    string
	}{
		"no network":         {[]sandbox.Secret{key}, false, "api.example.com", "has no network"},
		"host not allowed":   {[]sandbox.Secret{key}, true, "www.example.com", "api.example.com:443 is not allowed"},
		"port not allowed":   {[]sandbox.Secret{key}, true, "api.example.com:80", "api.example.com:443 is not allowed"},
		"twice":              {[]sandbox.Secret{key, key}, true, "api.example.com", "two secrets"},
		"without a value":    {[]sandbox.Secret{{Name: "API_KEY", Hosts: "api.example.com:443"}}, true, "api.example.com", "has 0 characters"},
		"not canonical host": {[]sandbox.Secret{{Name: "API_KEY", Hosts: "api.example.com", Value: key.Value}}, true, "api.example.com", "invalid hosts"},
	} {
		dir := t.TempDir()
		st, err := store.Open(t.Context(), store.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Options{Driver: nameOnly{network: c.network}, Store: st, StateDir: dir, MaxNetwork: c.most, Secrets: c.secrets})
		if err == nil || !strings.Contains(err.Error(), c.says) || sandbox.HintOf(err) == "" || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: %v, hint %q", what, err, sandbox.HintOf(err))
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeaderRules has a caller's rules reach the network of a box and nothing else.
// The boxes do not say who signs, as in TestSecrets: a box of this driver is a
// process of the machine, whose certificates must stay as they are.
func TestHeaderRules(t *testing.T) {
	const value = "only-the-host-may-know"
	d := &networkDriver{}
	dir, text := t.TempDir(), &strings.Builder{}
	e := openFake(t, dir, func(o *Options, _ *fake.Options) {
		o.Driver, o.MaxNetwork = d, "api.example.com,www.example.com"
		o.Log = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	rule := func(host string) []sandbox.Secret {
		r, err := sandbox.NewHeaderRule(host, "Authorization", value)
		if err != nil {
			t.Fatal(err)
		}
		return []sandbox.Secret{r}
	}
	ctx := t.Context()
	if _, err := e.Create(ctx, alice, sandbox.CreateRequest{Network: "www.example.com", HeaderRules: rule("api.example.com")}); !errors.Is(err, sandbox.Invalid) || len(d.secrets) != 0 {
		t.Errorf("a rule for a host that is not allowed: %v, %+v", err, d.secrets)
	}
	_, err := e.Create(ctx, alice, sandbox.CreateRequest{Network: "api.example.com", HeaderRules: rule("api.example.com")})
	if err == nil || !strings.Contains(err.Error(), "who signs") {
		t.Errorf("without an authority: %v", err)
	}
	if len(d.secrets) != 1 || d.secrets[0].Value.Reveal() != value {
		t.Errorf("the box gets %+v", d.secrets)
	}
	if env := guestlink.SecretEnv(d.secrets); env["SSL_CERT_FILE"] == "" || env[""] != "" || strings.Contains(fmt.Sprint(env), value) {
		t.Errorf("programs have %v", env)
	}
	sb, err := e.Create(ctx, alice, sandbox.CreateRequest{Network: "api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n     sandbox.Network
		rules []sandbox.Secret
		says  string
		want  int
	}{
		{"api.example.com,www.example.com", rule("www.example.com"), "who signs", 1},
		{"api.example.com", rule("www.example.com"), "does not allow www.example.com:443", 0},
		{"api.example.com,www.example.com", []sandbox.Secret{}, "", 0}, // the policy is the same
	} {
		d.policy, d.rules = "", nil
		_, err := e.SetNetworkRules(ctx, alice, sb.ID, c.n, c.rules)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.n, err)
		}
		if refused := strings.Contains(c.says, "allow"); len(d.rules) != c.want || (d.rules == nil) != refused || (d.policy == "") != refused {
			t.Errorf("%s: the box gets %q, %+v", c.n, d.policy, d.rules)
		}
	}
	if _, err := e.SetNetworkRules(ctx, "mallory", sb.ID, "api.example.com", rule("api.example.com")); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's sandbox: %v", err)
	}
	// The policy alone keeps the rules.
	if _, err := e.SetNetwork(ctx, alice, sb.ID, "api.example.com"); err != nil || d.rules != nil || d.policy != "api.example.com" {
		t.Errorf("%v, %q, %+v", err, d.policy, d.rules)
	}
	if strings.Contains(text.String(), value) {
		t.Errorf("the log has the value: %s", text)
	}
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), value) {
			t.Errorf("%s has the value", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
