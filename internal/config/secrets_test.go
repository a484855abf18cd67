package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSecrets(t *testing.T) {
	file := write(t, "from the file\r\n")
	c, err := Load(write(t, `
secrets:
  - {name: API_KEY, hosts: [API.example.com, "*.example.org:8443"]}
  - {name: OTHER, hosts: [a.example], env: VARIABLE, principals: [local], headers: [x-own-key, "Cookie,X-Own-Key"]}
  - {name: THIRD, hosts: [a.example], file: `+file+`}
`), env("API_KEY", "from the environment", "VARIABLE", "of another name", "THIRD", "not this"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := c.OpenSecrets()
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []string{"from the environment", "of another name", "from the file"} {
		if v := got[i].Value.Reveal(); v != want {
			t.Errorf("%s is %q, want %q", got[i].Name, v, want)
		}
	}
	if got[0].Hosts != "api.example.com:443,*.example.org:8443" || !got[0].UsedBy("anybody") || got[1].UsedBy("anybody") || !got[1].UsedBy("local") {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(got[1].Headers, []string{"X-Own-Key", "Cookie"}) || !got[1].TakesHeader("Cookie") || got[1].TakesHeader("Authorization") {
		t.Errorf("its headers are %q", got[1].Headers)
	}
	if got[0].Headers != nil || !got[0].TakesHeader("Authorization") || got[0].TakesHeader("Origin") {
		t.Errorf("by default its headers are %q", got[0].Headers)
	}
}

func TestSecretsRefused(t *testing.T) {
	for what, c := range map[string]struct{ file, says string }{
		"no host":    {"{name: KEY}", "no host"},
		"no name":    {"{name: A-B, hosts: [a.example]}", "has no variable A-B"},
		"an address": {"{name: KEY, hosts: [192.0.2.1]}", "192.0.2.1 cannot be a host of a secret"},
		"both":       {"{name: KEY, hosts: [a.example], env: A, file: b}", "both env and file"},
		"no header":  {"{name: KEY, hosts: [a.example], headers: [X Key]}", "\"X Key\" is not a header name"},
		"its host":   {"{name: KEY, hosts: [a.example], headers: [host]}", "cannot be in the header Host"},
		"no file":    {"{name: KEY, hosts: [a.example], file: /nowhere/key}", "/nowhere/key"},
		"no value":   {"{name: KEY, hosts: [a.example], env: NOTHING}", "has no variable NOTHING"},
		"too short":  {"{name: SHORT, hosts: [a.example]}", "has 7 characters"},
		"two lines":  {"{name: LINES, hosts: [a.example]}", "control characters"},
		"inline":     {"{name: KEY, hosts: [a.example], value: correct horse}", `unknown field "secrets[0].value"`},
	} {
		c2, err := Load(write(t, "secrets:\n  - "+c.file+"\n"), env("SHORT", "hunter2", "LINES", "correct\nhorse"))
		if err == nil {
			err = c2.Validate()
		}
		if err == nil {
			_, err = c2.OpenSecrets()
		}
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
