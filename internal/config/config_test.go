package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// userHome is the home directory of env.
func userHome() string {
	if runtime.GOOS == "windows" {
		return `C:\Users\u`
	}
	return "/home/u"
}

// env returns a getenv of a map, so that no test depends on the machine. It has
// of a home what the system sets.
func env(pairs ...string) func(string) string {
	m := map[string]string{"HOME": userHome()}
	if runtime.GOOS == "windows" {
		m = map[string]string{"USERPROFILE": userHome(), "LOCALAPPDATA": userHome() + `\AppData\Local`}
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultIsValid(t *testing.T) {
	c := Default(env())
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := c.Sandbox.Default.Limits(); got != sandbox.DefaultLimits() {
		t.Errorf("default limits %+v, want %+v", got, sandbox.DefaultLimits())
	}
}

func TestSampleIsTheDefault(t *testing.T) {
	got, err := Load(write(t, Sample), env())
	if err != nil {
		t.Fatal(err)
	}
	want := Default(env())
	want.Sandbox.AllowUnenforced = got.Sandbox.AllowUnenforced[:0]
	want.Network.Allow, want.Network.Default, want.Secrets = []string{}, []string{}, []Secret{}
	want.Server.AllowHosts, want.Server.AllowOrigins, want.MCP.Tools = []string{}, []string{}, []string{}
	want.Server.TrustedProxies = []string{}
	want.MCP.AllowDirs, want.MCP.Approve = []string{}, []string{}
	want.Kubernetes.PullSecrets = []string{}
	want.Images.Registries, want.Images.Mirrors = []string{}, map[string][]string{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sample.yaml differs from Default (-want +got):\n%s", diff)
	}
}

func TestSampleNamesEveryField(t *testing.T) {
	var tree map[string]any
	// The one field whose default depends on the machine is commented out.
	text := strings.Replace(Sample, "\n# state_dir:", "\nstate_dir:", 1)
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	var check func(typ reflect.Type, node map[string]any, path string)
	check = func(typ reflect.Type, node map[string]any, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := f.Tag.Get("yaml")
			if name == "-" {
				continue
			}
			v, ok := node[name]
			if !ok {
				t.Errorf("sample.yaml has no %s%s", path, name)
			}
			if sub, ok := v.(map[string]any); ok && f.Type.Kind() == reflect.Struct {
				check(f.Type, sub, path+name+".")
			}
		}
	}
	check(reflect.TypeFor[Config](), tree, "")
}

func TestSampleNamesEveryVariable(t *testing.T) {
	for _, v := range Variables() {
		if !strings.Contains(Sample, v) {
			t.Errorf("sample.yaml does not name %s", v)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	path := write(t, "driver: gvisor\nrun:\n  timeout: 45s\n  max_timeout: 1h\n")
	c, err := Load(path, env("GLOVEBOX_DRIVER", "docker", "GLOVEBOX_TOKEN", strings.Repeat("t", 32),
		"GLOVEBOX_LOG_LEVEL", "debug", "GLOVEBOX_ALLOW_UNENFORCED", "memory, cpu", "GLOVEBOX_STATE_DIR", "~/boxes"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Driver != "docker" {
		t.Errorf("driver %q: the environment must win over the file", c.Driver)
	}
	if got := time.Duration(c.Run.Timeout); got != 45*time.Second {
		t.Errorf("run.timeout %v, want 45s", got)
	}
	if c.Server.Listen != Default(env()).Server.Listen {
		t.Errorf("server.listen %q: a field the file leaves out must keep its default", c.Server.Listen)
	}
	if c.LogLevel != slog.LevelDebug {
		t.Errorf("log level %v", c.LogLevel)
	}
	if diff := cmp.Diff([]sandbox.ControlName{"memory", "cpu"}, c.Sandbox.AllowUnenforced); diff != "" {
		t.Error(diff)
	}
	if c.StateDir != filepath.Join(userHome(), "boxes") {
		t.Errorf("state_dir %q", c.StateDir)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLoadDefaultFile(t *testing.T) {
	home := t.TempDir()
	if _, err := Load("", env("HOME", home)); err != nil {
		t.Errorf("without a file: %v", err)
	}
	dir := filepath.Join(home, ".config", "glovebox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load("", env("HOME", home)); err != nil {
		t.Errorf("with comments only: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("driver: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("", env("HOME", home))
	if err != nil || c.Driver != "x" {
		t.Errorf("driver %q, %v; want x", c.Driver, err)
	}
}

func TestDefaultsWithinMaximum(t *testing.T) {
	c, err := Load(write(t, "sandbox:\n  default:\n    cpus: 0.5\n    disk: 3GiB\n  maximum:\n    cpus: 2\n    memory: 128MiB\n    disk: 2GiB\n    lifetime: 1h\n"), env("HOME", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	usual := Default(env()).Sandbox.Default
	want := Limits{CPUs: 0.5, Memory: 128 << 20, Disk: 2 << 30, Processes: usual.Processes, Idle: usual.Idle, Lifetime: Lifetime(time.Hour)}
	if d := cmp.Diff(want, c.Sandbox.Default); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestLoadErrors(t *testing.T) {
	tests := map[string]struct {
		file string
		env  []string
		want string
	}{
		"unknown field":       {file: "sandbox:\n  imagee: x\n", want: `line 2: unknown field "sandbox.imagee"`},
		"misspelled field":    {file: "sandbox:\n  default:\n    memroy: 1\n", want: `line 3: unknown field "sandbox.default.memroy"; did you mean sandbox.default.memory?`},
		"field elsewhere":     {file: "timeout: 5s\n", want: `line 1: unknown field "timeout"; did you mean run.timeout?`},
		"wrong type":          {file: "sandbox:\n  count: many\n", want: `line 2: sandbox.count: "many" is not a whole number`},
		"wrong number":        {file: "sandbox:\n  default:\n    cpus: lots\n", want: `line 3: sandbox.default.cpus: "lots" is not a number`},
		"value for fields":    {file: "\nserver: on\n", want: `line 2: server: "on" is a single value`},
		"list for a value":    {file: "driver: [a]\n", want: `line 1: driver: must be a single value`},
		"value for a list":    {file: "network:\n  allow: pypi.org\n", want: `line 2: network.allow: "pypi.org" is a single value; write a list, like [pypi.org]`},
		"a tab":               {file: "run:\n\ttimeout: 5s\n", want: "line 2: begins with a tab; indent with spaces"},
		"bad size":            {file: "sandbox:\n  default:\n    memory: 5 parsecs\n", want: `line 3: sandbox.default.memory: "5 parsecs" is not a size`},
		"bad duration":        {file: "run:\n  timeout: soon\n", want: `line 2: run.timeout: "soon" is not a time span`},
		"negative duration":   {file: "run:\n  timeout: -3s\n", want: "negative"},
		"not YAML":            {file: "a: [\n", want: "line"},
		"bad indentation":     {file: "sandbox:\n  default:\n    cpus: 1\n memory: 2\n", want: "line 4: did not find expected key; look at the indentation"},
		"open bracket":        {file: "network:\n\n  allow: [a\n", want: "line 3: did not find expected"},
		"two documents":       {file: "driver: a\n---\ndriver: b\n", want: "more than one"},
		"token in a file":     {file: "server:\n  token: x\n", want: `unknown field "server.token"`},
		"bad level in env":    {env: []string{"GLOVEBOX_LOG_LEVEL", "loud"}, want: "GLOVEBOX_LOG_LEVEL"},
		"bad duration in env": {env: []string{"GLOVEBOX_TIMEOUT", "soon"}, want: "GLOVEBOX_TIMEOUT"},
		"file is not there":   {env: []string{"GLOVEBOX_CONFIG", "/nonexistent/x.yaml"}, want: "x.yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := ""
			if test.file != "" {
				path = write(t, test.file)
			}
			_, err := Load(path, env(append(test.env, "HOME", t.TempDir())...))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if !errors.Is(err, sandbox.Invalid) {
				t.Errorf("kind %v, want invalid", sandbox.KindOf(err))
			}
			if strings.Contains(err.Error(), "config.") && strings.Contains(err.Error(), "type config") {
				t.Errorf("error shows a Go type: %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		spoil func(*Config)
		want  string
	}{
		"no driver":          {func(c *Config) { c.Driver = "" }, "driver"},
		"no transport":       {func(c *Config) { c.Kubernetes.Transport = "" }, "kubernetes.transport"},
		"unknown transport":  {func(c *Config) { c.Kubernetes.Transport = "tls" }, "kubernetes.transport"},
		"no state dir":       {func(c *Config) { c.StateDir = "" }, "state_dir"},
		"relative state dir": {func(c *Config) { c.StateDir = "x/y" }, "state_dir"},
		"no queue":           {func(c *Config) { c.Sandbox.Queue = -1 }, "sandbox.queue"},
		"an endless queue":   {func(c *Config) { c.Sandbox.Queue = Duration(time.Hour) }, "sandbox.queue"},
		"hibernation":        {func(c *Config) { c.Sandbox.Hibernate = "tape" }, "sandbox.hibernate"},
		"eviction":           {func(c *Config) { c.Sandbox.EvictAfter = -1 }, "sandbox.evict_after"},
		"no sandboxes":       {func(c *Config) { c.Sandbox.Count = 0 }, "sandbox.count"},
		"default over maximum": {func(c *Config) { c.Sandbox.Maximum.Memory = 100 << 20 },
			"sandbox.default: memory: 512 MiB is above the server's maximum"},
		"least memory":               {func(c *Config) { c.Sandbox.Default.Memory = 1 << 20 }, "sandbox.default: memory"},
		"unknown control":            {func(c *Config) { c.Sandbox.AllowUnenforced = []sandbox.ControlName{"ram"} }, "allow_unenforced"},
		"no timeout":                 {func(c *Config) { c.Run.Timeout = 0 }, "run.timeout"},
		"audit without a switch":     {func(c *Config) { c.Audit.Required = true }, "audit.enabled"},
		"audit in a relative place":  {func(c *Config) { c.Audit.Dir = "audit" }, "audit.dir"},
		"audit in tiny files":        {func(c *Config) { c.Audit.FileSize = 1000 }, "audit.file_size"},
		"usage by an endless label":  {func(c *Config) { c.Usage.Label = strings.Repeat("x", 101) }, "usage.label"},
		"audit of few endless files": {func(c *Config) { c.Audit.FileSize, c.Audit.Keep = 0, 2 }, "audit.keep"},
		"timeout over max":           {func(c *Config) { c.Run.MaxTimeout = 1 }, "run.max_timeout"},
		"short history":              {func(c *Config) { c.Run.Keep = 0 }, "run.keep"},
		"small log":                  {func(c *Config) { c.Run.LogSize = 1 }, "run.log_size"},
		"small space for logs":       {func(c *Config) { c.Run.LogSpace = 127 << 20 }, "run.log_space: 127MiB is less than twice the space of a run, 128MiB"},
		"no space for logs":          {func(c *Config) { c.Run.LogSize, c.Run.LogSpace = minLogSize, 0 }, "run.log_space"},
		"negative time to compress":  {func(c *Config) { c.Saved.CompressAfter = -1 }, "saved.compress_after"},
		"no key":                     {func(c *Config) { c.Saved.Encrypt = true }, "saved.encrypt"},
		"relative key":               {func(c *Config) { c.Saved.Key = "key" }, "saved.key"},
		"no snapshot":                {func(c *Config) { c.Snapshots.Count = 0 }, "snapshots.count"},
		"no room for snapshots":      {func(c *Config) { c.Snapshots.Size = 0 }, "snapshots.size"},
		"no time for snapshots":      {func(c *Config) { c.Snapshots.Keep = 0 }, "snapshots.keep"},
		"bad address":                {func(c *Config) { c.Server.Listen = "8080" }, "server.listen"},
		"short token":                {func(c *Config) { c.Server.Token = "secret" }, "GLOVEBOX_TOKEN"},
		"public URL":                 {func(c *Config) { c.Server.PublicURL = "glovebox.example.com" }, "server.public_url"},
		"key without cert":           {func(c *Config) { c.Server.TLSKey = "key.pem" }, "server.tls_cert"},
		"no context size":            {func(c *Config) { c.Templates.ContextSize = 0 }, "templates.context_size"},
		"negative space":             {func(c *Config) { c.Templates.ImageSpace = -1 }, "templates.image_space"},
		"no build":                   {func(c *Config) { c.Templates.Builds = 0 }, "templates.builds"},
		"no build time":              {func(c *Config) { c.Templates.BuildTime = 0 }, "templates.build_time"},
		"no ready time":              {func(c *Config) { c.Templates.ReadyTime = -1 }, "templates.ready_time"},
		"a proxy by name":            {func(c *Config) { c.Server.TrustedProxies = []string{"10.0.0.1", "proxy.example"} }, "server.trusted_proxies"},
		"a proxy with a zone":        {func(c *Config) { c.Server.TrustedProxies = []string{"fe80::1%eth0"} }, "server.trusted_proxies"},
		"a proxy in IPv6's form":     {func(c *Config) { c.Server.TrustedProxies = []string{"::ffff:10.0.0.0/104"} }, "server.trusted_proxies"},
		"everybody is a proxy":       {func(c *Config) { c.Server.TrustedProxies = []string{"0.0.0.0/0"} }, "server.trusted_proxies"},
		"no rate":                    {func(c *Config) { c.Server.RateLimit = 0 }, "server.rate_limit"},
		"small body":                 {func(c *Config) { c.Server.BodyLimit = 1 }, "server.body_limit"},
		"no session":                 {func(c *Config) { c.Server.Sessions = 0 }, "server.sessions"},
		"audience alone":             {func(c *Config) { c.Server.OIDC.Audience = "x" }, "server.oidc.audience"},
		"open sign-in":               {func(c *Config) { c.Server.SignIn.Enabled, c.Server.Listen = true, "0.0.0.0:8080" }, "server.sign_in.enabled"},
		"sign-in by http":            {func(c *Config) { c.Server.SignIn.Enabled, c.Server.PublicURL = true, "http://box.example" }, "server.sign_in.enabled"},
		"sign-in and issuer": {func(c *Config) {
			c.Server.SignIn.Enabled, c.Server.OIDC.Issuer, c.Server.OIDC.Audience = true, "https://issuer.example", "x"
		}, "server.sign_in.enabled"},
		"documents alone": {func(c *Config) { c.Server.SignIn.Documents = true }, "server.sign_in.documents"},
		"no audience":     {func(c *Config) { c.Server.OIDC.Issuer = "https://issuer.example" }, "server.oidc.audience"},
		"open issuer": {func(c *Config) { c.Server.OIDC.Issuer, c.Server.OIDC.Audience = "http://issuer.example", "x" },
			"server.oidc.issuer"},
		"empty scope": {func(c *Config) {
			c.Server.OIDC = OIDC{Issuer: "http://localhost:1", Audience: "x", Scopes: OIDCScopes{Run: "a", Files: "b"}}
		}, "server.oidc.scopes.admin"},
		"client without a secret":     {func(c *Config) { client(c).Client.Secret = "" }, "GLOVEBOX_OIDC_CLIENT_SECRET"},
		"a secret without a client":   {func(c *Config) { client(c).Client = OIDCClient{Secret: "secret"} }, "server.oidc.client.id"},
		"scopes without a client":     {func(c *Config) { client(c).Client = OIDCClient{Scopes: []string{"a"}} }, "server.oidc.client.id"},
		"client without an issuer":    {func(c *Config) { client(c).Issuer, c.Server.OIDC.Audience = "", "" }, "server.oidc.issuer"},
		"client without pages":        {func(c *Config) { client(c); c.Server.Dashboard = false }, "server.dashboard"},
		"client without a way back":   {func(c *Config) { client(c); c.Server.PublicURL = "" }, "server.public_url"},
		"client with an open way":     {func(c *Config) { client(c); c.Server.PublicURL = "http://box.example" }, "unencrypted"},
		"client below a path":         {func(c *Config) { client(c); c.Server.PublicURL = "https://box.example/a" }, "at the root"},
		"client with an odd scope":    {func(c *Config) { client(c).Client.Scopes = []string{"a b"} }, "server.oidc.client.scopes"},
		"client with another's state": {func(c *Config) { client(c).Client.Parameters = map[string]string{"state": "x"} }, "server.oidc.client.parameters.state"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Default(env())
			test.spoil(&c)
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
				t.Errorf("kind %v, hint %q; want invalid with a hint", sandbox.KindOf(err), sandbox.HintOf(err))
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

// client configures a client of an issuer.
func client(c *Config) *OIDC {
	c.Server.PublicURL = "https://box.example"
	c.Server.OIDC.Issuer, c.Server.OIDC.Audience = "https://issuer.example", "box"
	c.Server.OIDC.Client.ID, c.Server.OIDC.Client.Secret = "dashboard", "secret"
	return &c.Server.OIDC
}

func TestServerFromEnvironment(t *testing.T) {
	c, err := Load(write(t, "server:\n  oidc:\n    scopes:\n      run: box.run\n"), env(
		"GLOVEBOX_TLS_CERT", "~/cert.pem", "GLOVEBOX_TLS_KEY", "/key.pem", "GLOVEBOX_PUBLIC_URL", "https://box.example",
		"GLOVEBOX_ALLOW_HOSTS", "a, b:80,", "GLOVEBOX_ALLOW_ORIGINS", "https://app.example",
		"GLOVEBOX_TRUSTED_PROXIES", "10.1.2.3/8,fd00::1",
		"GLOVEBOX_OIDC_ISSUER", "https://issuer.example", "GLOVEBOX_OIDC_AUDIENCE", "box",
		"GLOVEBOX_OIDC_CLIENT_ID", "pages", "GLOVEBOX_OIDC_CLIENT_SECRET_FILE", write(t, "of\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := defaultServer()
	want.TLSCert, want.TLSKey, want.PublicURL = filepath.Join(userHome(), "cert.pem"), "/key.pem", "https://box.example"
	want.AllowHosts, want.AllowOrigins = []string{"a", "b:80"}, []string{"https://app.example"}
	want.TrustedProxies = []string{"10.1.2.3/8", "fd00::1"}
	want.OIDC = OIDC{Issuer: "https://issuer.example", Audience: "box", Scopes: OIDCScopes{Run: "box.run", Files: "files", Admin: "admin"}, Groups: OIDCGroups{Map: map[string]string{}},
		Client: OIDCClient{ID: "pages", Secret: "of", Scopes: []string{}, Parameters: map[string]string{}}}
	if diff := cmp.Diff(want, c.Server); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if proxies, err := c.Server.Proxies(); err != nil || fmt.Sprint(proxies) != "[10.0.0.0/8 fd00::1/128]" {
		t.Errorf("proxies %v, %v", proxies, err)
	}
	for _, text := range []string{"", "run", "walk=x"} {
		if err := c.Server.OIDC.SetScope(text); err == nil {
			t.Errorf("SetScope(%q) succeeded", text)
		}
	}
	if err := c.Server.OIDC.SetScope("files=box.files"); err != nil || c.Server.OIDC.Scopes.Files != "box.files" {
		t.Errorf("SetScope: %q, %v", c.Server.OIDC.Scopes.Files, err)
	}
}

// TestLifetime reads lifetimes above a day, and none.
func TestLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{"24h": 24 * time.Hour, "8760h": 365 * 24 * time.Hour, "60": time.Minute, "none": sandbox.Forever} {
		var l, again Lifetime
		if err := l.UnmarshalText([]byte(text)); err != nil || time.Duration(l) != want {
			t.Errorf("%s is %v, %v", text, l, err)
		}
		if b, err := l.MarshalText(); err != nil || again.UnmarshalText(b) != nil || again != l {
			t.Errorf("%s is written as %s, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "never", "-1h", "876000h"} {
		var l Lifetime
		if err := l.UnmarshalText([]byte(text)); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

// TestLongestRun: no maximum is the time of the sandbox, except for programs whose
// caller cannot name a timeout.
func TestLongestRun(t *testing.T) {
	for run, want := range map[Run]time.Duration{
		{Timeout: Duration(time.Second)}:                                    10 * time.Minute,
		{Timeout: Duration(time.Hour)}:                                      time.Hour,
		{Timeout: Duration(time.Second), MaxTimeout: Duration(time.Minute)}: time.Minute,
	} {
		if d := run.Unattended(); d != want {
			t.Errorf("%+v gives %v to a program without a timeout, want %v", run, d, want)
		}
	}
	if d := (Run{MaxTimeout: Duration(time.Minute)}).Longest(); d != time.Minute {
		t.Errorf("a minute is %v", d)
	}
	if d := Default(env()).Run.Longest(); d != sandbox.Forever {
		t.Errorf("the default is %v", d)
	}
}

// TestLargeLogs: a configuration from before run.log_space stays valid.
func TestLargeLogs(t *testing.T) {
	c, err := Load(write(t, "run: {log_size: 3GiB}\n"), env())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil || c.Run.LogSpace != 4<<30 {
		t.Errorf("space %v, %v; want the default, which is valid", c.Run.LogSpace, err)
	}
}

func TestBytes(t *testing.T) {
	good := map[string]Bytes{
		"0": 0, "17": 17, "1k": 1024, "512MiB": 512 << 20, "512 MiB": 512 << 20, "1.5g": 3 << 29,
		"2GB": 2e9, "64m": 64 << 20, "10B": 10,
	}
	for text, want := range good {
		var b Bytes
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("Set(%q) = %d, %v; want %d", text, b, err, want)
		}
		var again Bytes
		if err := again.Set(want.String()); err != nil || again != want {
			t.Errorf("Set(String() of %d) = %d, %v", want, again, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.2.3", "5 parsecs", "99999999999t", "NaN", "1e30"} {
		var b Bytes
		if err := b.Set(text); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Set(%q) = %d, %v; want an error of kind invalid", text, b, err)
		}
	}
}

func TestDuration(t *testing.T) {
	good := map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "45": 45 * time.Second, "0.5": time.Second / 2, "0": 0}
	for text, want := range good {
		var d Duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("Set(%q) = %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1s", "-1", "NaN", "Inf", "1e300"} {
		var d Duration
		if err := d.Set(text); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Set(%q) = %v, %v; want an error of kind invalid", text, d, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := strings.Repeat("t", 32)
	c, err := Load("", env("GLOVEBOX_TOKEN_FILE", file("token", token+"\n")))
	if err != nil || c.Server.Token != token {
		t.Errorf("token %q, %v", c.Server.Token, err)
	}
	for name, bad := range map[string][]string{
		"both":       {"GLOVEBOX_TOKEN", token, "GLOVEBOX_TOKEN_FILE", file("token", token)},
		"none there": {"GLOVEBOX_TOKEN_FILE", filepath.Join(dir, "nothing")},
		"empty":      {"GLOVEBOX_TOKEN_FILE", file("empty", " \n")},
		"too long":   {"GLOVEBOX_TOKEN_FILE", file("long", strings.Repeat("t", maxTokenFile+1))},
		"two lines":  {"GLOVEBOX_TOKEN_FILE", file("two", token+"\n"+token+"\n")},
		"directory":  {"GLOVEBOX_TOKEN_FILE", dir},
	} {
		_, err := Load("", env(bad...))
		if !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "GLOVEBOX_TOKEN_FILE") || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
