package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestDotEnv(t *testing.T) {
	dir := t.TempDir()
	getenv, err := DotEnv(dir, environment("A", "mine"))
	if err != nil || getenv("A") != "mine" || getenv("B") != "" {
		t.Fatalf("without a file: A=%q, B=%q, %v", getenv("A"), getenv("B"), err)
	}
	text := "# comment\n\nA=theirs\nexport B = plain value # a comment\nC='a $(touch x) # b'\nD=\"with = and spaces\"  # c\nE=\nF=x#y\r\n"
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv, err = DotEnv(dir, environment("A", "mine"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "mine", "B": "plain value", "C": "a $(touch x) # b", "D": "with = and spaces", "E": "", "F": "x#y"} {
		if got := getenv(name); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	for _, bad := range []string{"no assignment\n", "A='no end\n", "=x\n", strings.Repeat("#", maxDotEnv+1)} {
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := DotEnv(dir, environment()); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%.20q: %v; want an invalid error", bad, err)
		}
	}
}

func FuzzParseDotEnv(f *testing.F) {
	f.Add("A=1\nexport B='x' # y\n")
	f.Add("C=\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseDotEnv(text)
		if err == nil && len(values) > strings.Count(text, "=") {
			t.Errorf("%q: %d values", text, len(values))
		}
	})
}

func TestCodeRunnerSettings(t *testing.T) {
	token := strings.Repeat("t", 20)
	c := Default(environment())
	if err := c.CodeRunner(environment("MCP_HTTP_ADDR", ":9090", "PUBLIC_BASE_URL", "https://x.example", "MCP_API_TOKEN", token)); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err == nil {
		got := []string{c.Server.Listen, c.Server.PublicURL, c.Server.Token, strings.Join(c.Server.AllowHosts, ",")}
		if diff := cmp.Diff([]string{":9090", "https://x.example", token, "*"}, got); diff != "" {
			t.Errorf("settings (-want +got):\n%s", diff)
		}
	} else if os.PathSeparator == '/' && c.StateDir != "" {
		t.Error(err)
	}
	c = Default(environment())
	if err := c.CodeRunner(environment("MCP_API_TOKEN", "secret")); !errors.Is(err, sandbox.Invalid) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a short token: %v; want an invalid error that does not show it", err)
	}
	c = Default(environment())
	c.Server.Listen, c.Server.Token = "127.0.0.1:1", "of glovebox's own"
	err := c.CodeRunner(environment("MCP_HTTP_ADDR", ":9090", "GLOVEBOX_LISTEN", "127.0.0.1:1", "MCP_API_TOKEN", token, "GLOVEBOX_TOKEN", "of glovebox's own"))
	if err != nil || c.Server.Listen != "127.0.0.1:1" || c.Server.Token != "of glovebox's own" || len(c.Server.AllowHosts) > 0 {
		t.Errorf("Glovebox's own variables do not win: %+v, %v", c.Server, err)
	}
}

func TestInterpreterType(t *testing.T) {
	known := []string{"gvisor", "e2b"}
	for value, want := range map[string]string{"": DriverAuto, "e2b": "e2b", "gvisor": "gvisor", "auto": DriverAuto} {
		c := Default(environment())
		if err := c.InterpreterType(environment("INTERPRETER_TYPE", value), known); err != nil || c.Driver != want {
			t.Errorf("INTERPRETER_TYPE=%q: driver %q, %v; want %q", value, c.Driver, err, want)
		}
	}
	c := Default(environment())
	if err := c.InterpreterType(environment("INTERPRETER_TYPE", "firecracker"), known); !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
		t.Errorf("an unknown interpreter: %v; want an invalid error with a hint", err)
	}
}
