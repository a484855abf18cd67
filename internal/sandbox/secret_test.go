package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestSecretIsFor(t *testing.T) {
	hosts, err := ParseSecretHosts("API.example.com", "*.internal.example:8443, api.example.com:443")
	if err != nil || hosts != "api.example.com:443,*.internal.example:8443" {
		t.Fatalf("%q, %v", hosts, err)
	}
	s := Secret{Name: "KEY", Hosts: hosts}
	for _, c := range []struct {
		host string
		port uint16
		want bool
	}{
		{"api.example.com", 443, true},
		{"api.example.com", 80, false},
		{"api.example.com", 8443, false},
		{"example.com", 443, false},
		{"a.internal.example", 8443, true},
		{"a.internal.example", 443, false},
		{"internal.example", 8443, false},
		{"evilapi.example.com", 443, false},
	} {
		if got := s.IsFor(c.host, c.port); got != c.want {
			t.Errorf("IsFor(%q, %d) = %v", c.host, c.port, got)
		}
	}
}

func TestSecretCheck(t *testing.T) {
	good := Secret{Name: "API_KEY", Hosts: "api.example.com:443", Value: NewSecretValue("correct horse")}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Secret){
		"no name":          func(s *Secret) { s.Name = "" },
		"no variable":      func(s *Secret) { s.Name = "API-KEY" },
		"no host":          func(s *Secret) { s.Hosts = "" },
		"none":             func(s *Secret) { s.Hosts = NetworkNone },
		"everything":       func(s *Secret) { s.Hosts = NetworkInternet },
		"an address":       func(s *Secret) { s.Hosts = "192.0.2.1:443" },
		"no port":          func(s *Secret) { s.Hosts = "api.example.com" },
		"no header":        func(s *Secret) { s.Headers = []string{"X Key"} },
		"a length":         func(s *Secret) { s.Headers = []string{"Content-Length"} },
		"header's case":    func(s *Secret) { s.Headers = []string{"x-key"} },
		"a long header":    func(s *Secret) { s.Headers = []string{"X" + strings.Repeat("x", maxSecretHeader)} },
		"many headers":     func(s *Secret) { s.Headers = manyHeaders() },
		"no value":         func(s *Secret) { s.Value = SecretValue{} },
		"a short value":    func(s *Secret) { s.Value = NewSecretValue("hunter2") },
		"a long name":      func(s *Secret) { s.Name = strings.Repeat("N", maxSecretName+1) },
		"a long value":     func(s *Secret) { s.Value = NewSecretValue(strings.Repeat("correct", 2000)) },
		"two lines":        func(s *Secret) { s.Value = NewSecretValue("correct\r\nX-Other: horse") },
		"two bare lines":   func(s *Secret) { s.Value = NewSecretValue("correct\nhorse") },
		"a NUL in a value": func(s *Secret) { s.Value = NewSecretValue("correct\x00horse") },
	} {
		s := good
		change(&s)
		err := s.Check()
		if KindOf(err) != Invalid || HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", what, err, HintOf(err))
		}
		if err != nil && strings.Contains(err.Error()+HintOf(err), "correct") {
			t.Errorf("%s: the error has the value: %v", what, err)
		}
	}
}

func manyHeaders() []string {
	var names []string
	for i := range maxSecretHeaders + 1 {
		names = append(names, fmt.Sprintf("X-%d", i))
	}
	return names
}

// TestDefaultSecretHeaders has the list as a secret may name it itself, without
// those that hosts send back.
func TestDefaultSecretHeaders(t *testing.T) {
	names, err := ParseSecretHeaders(DefaultSecretHeaders()...)
	if err != nil || !slices.Equal(names, DefaultSecretHeaders()) {
		t.Errorf("%q, %v", names, err)
	}
	s := Secret{}
	for _, name := range []string{"Origin", "Referer", "User-Agent", "X-Request-Id", "If-None-Match", "Access-Control-Request-Headers", "Traceparent"} {
		if s.TakesHeader(name) {
			t.Errorf("by default a secret may be in %s", name)
		}
	}
}

// TestSecretValueStaysHidden has a value in all that a program could be printed
// or kept with.
func TestSecretValueStaysHidden(t *testing.T) {
	type inner struct{ s Secret }
	s := Secret{Name: "KEY", Hosts: "a.example", Value: NewSecretValue("correct horse")}
	var out bytes.Buffer
	for _, v := range []any{s, &s, []Secret{s}, inner{s}, &inner{s}, s.Value, map[string]any{"s": s.Value}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q\n", v, v, v, v, v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "v", v)
	}
	if strings.Contains(out.String(), "correct") || strings.Contains(out.String(), "horse") {
		t.Errorf("the value shows: %s", out.String())
	}
	if got := s.Value.Reveal(); got != "correct horse" {
		t.Errorf("Reveal() = %q", got)
	}
}

func TestPlaceholders(t *testing.T) {
	a, b := Secret{Name: "KEY"}, Secret{Name: "KEY_2"}
	if strings.Contains(b.Placeholder(), a.Placeholder()) || strings.Contains(a.Placeholder(), b.Placeholder()) {
		t.Errorf("%s and %s hold one another", a.Placeholder(), b.Placeholder())
	}
}
