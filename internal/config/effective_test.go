package config

import (
	"strings"
	"testing"
	"time"
)

func TestEffective(t *testing.T) {
	path := write(t, "driver: docker\nsandbox:\n  maximum:\n    memory: 128MiB\nnetwork:\n  allow: [pypi.org, a.example]\nrun:\n  timeout: 45s\nsecrets:\n  - {name: KEY, hosts: [a.example]}\n")
	getenv := env("HOME", t.TempDir(), "GLOVEBOX_TIMEOUT", "1m", "GLOVEBOX_TOKEN", "correct horse battery staple", "KEY", "the secret")
	c, err := Load(path, getenv)
	if err != nil {
		t.Fatal(err)
	}
	c.Workspace.TTL = Duration(time.Hour)
	list, file, err := Effective(path, getenv, c)
	if err != nil || file != path {
		t.Fatalf("file %q, %v", file, err)
	}
	got := map[string]Setting{}
	for _, s := range list {
		got[s.Name] = s
		if strings.Contains(s.Value, "horse") || strings.Contains(s.Value, "the secret") {
			t.Errorf("%+v shows a secret", s)
		}
	}
	for name, want := range map[string]Setting{
		"driver":                 {"driver", "docker", FromFile},
		"sandbox.maximum.memory": {"sandbox.maximum.memory", "128MiB", FromFile},
		"sandbox.default.memory": {"sandbox.default.memory", "128MiB", FromFile},
		"network.allow":          {"network.allow", "[pypi.org, a.example]", FromFile},
		"run.timeout":            {"run.timeout", "1m0s", FromEnvironment},
		"run.max_timeout":        {"run.max_timeout", "0s", FromDefault},
		"workspace.ttl":          {"workspace.ttl", "1h0m0s", FromFlag},
		"log_level":              {"log_level", "WARN", FromDefault},
		"secrets":                {"secrets", "[KEY]", FromFile},
	} {
		if got[name] != want {
			t.Errorf("%+v, want %+v", got[name], want)
		}
	}
	if _, file, err := Effective("", env("HOME", t.TempDir()), c); err != nil || file != "" {
		t.Errorf("without a file: %q, %v", file, err)
	}
}
