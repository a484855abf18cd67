package engine

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
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
	env := e.secretEnv(alice, "api.example.com")
	if env["API_KEY"] != key.Placeholder() || env["BOBS"] != "" || env["SSL_CERT_FILE"] == "" {
		t.Errorf("alice's programs have %v", env)
	}
	// Without a network there is nothing of it.
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); err != nil {
		t.Error(err)
	}
	if len(d.secrets) != 0 || len(e.secretEnv(alice, sandbox.NetworkNone)) != 0 {
		t.Errorf("without a network: %+v, %v", d.secrets, e.secretEnv(alice, sandbox.NetworkNone))
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
