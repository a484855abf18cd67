package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// EnvFile is the environment variable with the path of the configuration file.
const EnvFile = "GLOVEBOX_CONFIG"

// EnvProfile is the environment variable with the name of the profile.
const EnvProfile = "GLOVEBOX_PROFILE"

// Load returns the defaults, overwritten by the file at path and then by the
// environment. If path is "", the file is the value of GLOVEBOX_CONFIG, or else
// DefaultFile, which need not exist. The result is not validated, because flags
// come after it. A default limit above its maximum is lowered to it.
//
// The error wraps [sandbox.Invalid] and names the file and line, or the
// variable.
func Load(path string, getenv func(string) string) (Config, error) {
	c := Default(getenv)
	optional := false
	if path == "" {
		path = getenv(EnvFile)
	}
	if path == "" {
		path, optional = DefaultFile(getenv), true
	}
	if path != "" {
		data, err := os.ReadFile(path)
		switch {
		case err == nil:
			if err := c.decode(data); err != nil {
				return Config{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err),
					"see a complete sample with glovebox help config")
			}
		case optional && errors.Is(err, fs.ErrNotExist):
		default:
			return Config{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "read configuration: %w", err),
				"name a file that can be read with --config or GLOVEBOX_CONFIG; glovebox config prints a sample")
		}
	}
	for _, v := range c.environ() {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		if err := v.set(text); err != nil {
			return Config{}, sandbox.Errorf(sandbox.Invalid, "environment variable %s: %w", v.name, err)
		}
	}
	for _, path := range []*string{&c.StateDir, &c.Languages.Runners, &c.Server.TLSCert, &c.Server.TLSKey} {
		*path = homePath(*path, getenv)
	}
	for i := range c.Secrets {
		c.Secrets[i].Resolve(getenv)
	}
	// An operator who sets a maximum need not know the defaults.
	c.Sandbox.Default = c.Sandbox.Default.within(c.Sandbox.Maximum)
	return c, nil
}

func (c *Config) decode(data []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return syntaxError(data, err)
	}
	if err := checkFields(&doc, reflect.TypeFor[Config]()); err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(c)
	if errors.Is(err, io.EOF) {
		return nil // a file of comments only
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one YAML document")
	}
	return nil
}

// syntaxError returns the decoder's error about text that is not YAML. A tab is the
// usual mistake, and the decoder's words do not name it.
func syntaxError(data []byte, err error) error {
	for i, line := range strings.Split(string(data), "\n") {
		if strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t") && strings.TrimSpace(line) != "" {
			return fmt.Errorf("line %d: begins with a tab; indent with spaces", i+1)
		}
	}
	if m := unexpected.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1]) // digits
		return fmt.Errorf("line %d: %s; look at the indentation and the brackets from there on", line+1, m[2])
	}
	return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
}

// unexpected matches the errors of the decoder's parser, whose lines count from
// zero. A line is that of the construct that the mistake is in, or of the mistake.
var unexpected = regexp.MustCompile(`^yaml: line (\d+): (did not find expected .*)$`)

// A variable is a setting from the environment.
type variable struct {
	name string
	set  func(text string) error
}

func (c *Config) environ() []variable {
	str := func(p *string) func(string) error {
		return func(s string) error { *p = s; return nil }
	}
	boolean := func(p *bool) func(string) error {
		return func(s string) (err error) {
			*p, err = strconv.ParseBool(s)
			return err
		}
	}
	integer := func(p *int) func(string) error {
		return func(s string) (err error) {
			*p, err = strconv.Atoi(s)
			return err
		}
	}
	names := func(p *[]string) func(string) error {
		return func(s string) error { *p = list(s); return nil }
	}
	text := func(u encoding.TextUnmarshaler) func(string) error {
		return func(s string) error { return u.UnmarshalText([]byte(s)) }
	}
	return []variable{
		{"GLOVEBOX_DRIVER", str(&c.Driver)},
		{"GLOVEBOX_REQUIRE_ISOLATION", str(&c.RequireIsolation)},
		{"GLOVEBOX_STATE_DIR", str(&c.StateDir)},
		{"GLOVEBOX_LOG_LEVEL", c.SetLogLevel},
		{"GLOVEBOX_ALLOW_UNENFORCED", c.SetAllowUnenforced},
		{"GLOVEBOX_ALLOW_NETWORK", names(&c.Network.Allow)},
		{"GLOVEBOX_NETWORK_RATE", text(&c.Network.Rate)},
		{"GLOVEBOX_NETWORK_TOTAL", text(&c.Network.Total)},
		{"GLOVEBOX_WORKSPACE_TTL", text(&c.Workspace.TTL)},
		{"GLOVEBOX_POOL_SIZE", integer(&c.Pool.Size)},
		{"GLOVEBOX_POOL_PROTOTYPES", boolean(&c.Pool.Prototypes)},
		{"GLOVEBOX_TIMEOUT", text(&c.Run.Timeout)},
		{EnvProfile, str(&c.MCP.Profile)},
		{"GLOVEBOX_DOCKER_HOST", str(&c.Docker.Host)},
		{"GLOVEBOX_DOCKER_RUNTIME", str(&c.Docker.Runtime)},
		{"GLOVEBOX_DOCKER_WORKSPACES", str(&c.Docker.Workspaces)},
		{"GLOVEBOX_KUBERNETES_NAMESPACE", str(&c.Kubernetes.Namespace)},
		{"GLOVEBOX_KUBERNETES_RUNTIME_CLASS", str(&c.Kubernetes.RuntimeClass)},
		{"GLOVEBOX_KUBERNETES_GUEST_IMAGE", str(&c.Kubernetes.GuestImage)},
		{"SANDBOX_ROOT", str(&c.Docker.Inside)},
		{"SANDBOX_HOST_PATH", str(&c.Docker.Outside)},
		{"GLOVEBOX_RUNNERS", str(&c.Languages.Runners)},
		{"GLOVEBOX_PIP_INDEX", str(&c.Languages.PipIndex)},
		{"GLOVEBOX_NPM_REGISTRY", str(&c.Languages.NPMRegistry)},
		{"GLOVEBOX_REGISTRIES", names(&c.Images.Registries)},
		{"GLOVEBOX_LISTEN", str(&c.Server.Listen)},
		{"GLOVEBOX_E2B_LISTEN", str(&c.Server.E2BListen)},
		{"GLOVEBOX_METRICS_LISTEN", str(&c.Server.MetricsListen)},
		{"GLOVEBOX_E2B_DOMAIN", str(&c.Server.E2BDomain)},
		{"GLOVEBOX_E2B_PUBLIC_PORTS", boolean(&c.Server.E2BPublicPorts)},
		{"GLOVEBOX_PREVIEW_DOMAIN", str(&c.Server.PreviewDomain)},
		{"PUBLIC_BASE_URL", str(&c.Server.PublicURL)},
		{"GLOVEBOX_PUBLIC_URL", str(&c.Server.PublicURL)},
		{"GLOVEBOX_SHARD", str(&c.Server.Shard)},
		{"GLOVEBOX_TLS_CERT", str(&c.Server.TLSCert)},
		{"GLOVEBOX_TLS_KEY", str(&c.Server.TLSKey)},
		{"GLOVEBOX_ALLOW_HOSTS", names(&c.Server.AllowHosts)},
		{"GLOVEBOX_TRUSTED_PROXIES", names(&c.Server.TrustedProxies)},
		{"GLOVEBOX_ALLOW_ORIGINS", names(&c.Server.AllowOrigins)},
		{"E2B_API_KEY", str(&c.E2B.Key)},
		{"E2B_API_URL", str(&c.E2B.APIURL)},
		{"E2B_DOMAIN", str(&c.E2B.Domain)},
		{"E2B_SANDBOX_URL", str(&c.E2B.SandboxURL)},
		{"GLOVEBOX_OIDC_ISSUER", str(&c.Server.OIDC.Issuer)},
		{"GLOVEBOX_OIDC_AUDIENCE", str(&c.Server.OIDC.Audience)},
		{"GLOVEBOX_OIDC_CLIENT_ID", str(&c.Server.OIDC.Client.ID)},
		{"GLOVEBOX_OIDC_CLIENT_SECRET", str(&c.Server.OIDC.Client.Secret)},
		{"GLOVEBOX_OIDC_CLIENT_SECRET_FILE", c.Server.readClientSecret},
		{"GLOVEBOX_DASHBOARD", boolean(&c.Server.Dashboard)},
		{"GLOVEBOX_SIGN_IN", boolean(&c.Server.SignIn.Enabled)},
		{"GLOVEBOX_TOKEN", str(&c.Server.Token)},
		{"GLOVEBOX_TOKEN_FILE", c.Server.readToken},
		{"GLOVEBOX_UPDATE_NOTICE", boolean(&c.Update.Notice)},
		{"GLOVEBOX_UPDATE_URL", str(&c.Update.URL)},
	}
}

// Variables returns the names of all environment variables that Load reads,
// sorted.
func Variables() []string {
	names := []string{EnvFile}
	for _, v := range new(Config).environ() {
		names = append(names, v.name)
	}
	slices.Sort(names)
	return names
}

// SetLogLevel sets the log level from its name.
func (c *Config) SetLogLevel(text string) error {
	if err := c.LogLevel.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a log level; use debug, info, warn or error", text)
	}
	return nil
}

// SetAllowUnenforced sets Sandbox.AllowUnenforced from names separated by
// commas.
func (c *Config) SetAllowUnenforced(text string) error {
	c.Sandbox.AllowUnenforced = nil
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			c.Sandbox.AllowUnenforced = append(c.Sandbox.AllowUnenforced, sandbox.ControlName(name))
		}
	}
	return nil
}
