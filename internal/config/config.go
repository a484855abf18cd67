// Package config holds the operator's configuration. It is one struct, with its
// defaults in one function. Load reads it from a strict YAML file and from the
// environment.
//
// Only packages app and cli import it. A Config is plain data: Default makes
// one, Load fills it, flags may overwrite its fields, and Validate is called
// last.
//
// To add a field: add it to Config with a comment, to Default, and to
// sample.yaml (a test compares). Add it to Validate if some values are not
// valid, and to environ if the environment can set it. To retire a field: keep
// it for a release and make Validate refuse any value, with a hint that names
// the replacement.
package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Config is the complete configuration.
type Config struct {
	// Driver is the name of the driver; "auto" takes the best that works.
	Driver string `yaml:"driver"`
	// RequireIsolation is [IsolationAny], or [IsolationKernel] to refuse drivers
	// whose sandboxes have no kernel of their own.
	RequireIsolation string `yaml:"require_isolation"`
	// StateDir is the directory of Glovebox's database, logs and sandboxes.
	StateDir string `yaml:"state_dir"`
	// LogLevel is the lowest level that is logged.
	LogLevel slog.Level `yaml:"log_level"`

	Sandbox Sandbox `yaml:"sandbox"`
	Network Network `yaml:"network"`
	// Secrets are secrets that programs can use but not read.
	Secrets []Secret `yaml:"secrets"`
	Pool    Pool     `yaml:"pool"`
	Run     Run      `yaml:"run"`

	Workspace Workspace `yaml:"workspace"`
	Snapshots Snapshots `yaml:"snapshots"`
	Saved     Saved     `yaml:"saved"`

	Audit Audit `yaml:"audit"`
	Usage Usage `yaml:"usage"`

	Images    Images    `yaml:"images"`
	Templates Templates `yaml:"templates"`
	Languages Languages `yaml:"languages"`

	Docker     Docker     `yaml:"docker"`
	Kubernetes Kubernetes `yaml:"kubernetes"`
	E2B        E2B        `yaml:"e2b"`
	MCP        MCP        `yaml:"mcp"`
	Server     Server     `yaml:"server"`
	Update     Update     `yaml:"update"`
}

// Pool configures the warm pool of servers.
type Pool struct {
	// Size is the maximum number of sandboxes that are ready; 0 disables the
	// pool.
	Size int `yaml:"size"`
	// Prototypes lets the pool make sandboxes from a snapshot of one whose imports
	// are done, if the driver can and the imports took long.
	Prototypes bool `yaml:"prototypes"`
}

// Update configures the search for new releases.
type Update struct {
	// Notice makes commands on a terminal look for a release once a day and
	// report it.
	Notice bool `yaml:"notice"`
	// URL is the base URL of releases; empty is the default.
	URL string `yaml:"url"`
}

// Sandbox configures sandboxes.
type Sandbox struct {
	// Default are the limits that apply if a caller asks for none. Maximum are
	// the highest limits that a caller may ask for; zero is no maximum.
	Default Limits `yaml:"default"`
	Maximum Limits `yaml:"maximum"`
	// AllowUnenforced names limits that the machine need not be able to enforce.
	// The receipt of each sandbox shows which are not enforced.
	AllowUnenforced []sandbox.ControlName `yaml:"allow_unenforced"`
	// Count is the maximum number of sandboxes of one server at one time.
	Count int `yaml:"count"`
	// Queue is how long a caller waits for a free place; zero is not at all.
	// EvictAfter is the idle time after which a sandbox may be stopped in favour
	// of a waiting caller; zero is never.
	Queue      Duration `yaml:"queue"`
	EvictAfter Duration `yaml:"evict_after"`
	// Hibernate is where hibernated sandboxes are: HibernateMemory or HibernateDisk.
	Hibernate string `yaml:"hibernate"`
	// Containers lets programs in sandboxes become root with sudo and run containers
	// of their own.
	Containers bool `yaml:"containers"`
	// HibernateAfter is the idle time after which a sandbox is saved on disk; zero is
	// never. HibernateKeep is how long it is kept there; zero is for its lifetime.
	// HibernateSpace is how many bytes of the disk saved sandboxes may use; zero is no
	// limit.
	HibernateAfter Duration `yaml:"hibernate_after"`
	HibernateKeep  Duration `yaml:"hibernate_keep"`
	HibernateSpace Bytes    `yaml:"hibernate_space"`
}

// The values of Sandbox.Hibernate.
const (
	HibernateMemory = "memory"
	HibernateDisk   = "disk"
)

// Limits are the limits of a sandbox in a configuration file.
type Limits struct {
	CPUs      float64  `yaml:"cpus"`
	Memory    Bytes    `yaml:"memory"`
	Disk      Bytes    `yaml:"disk"`
	Processes int      `yaml:"processes"`
	Idle      Duration `yaml:"idle"`
	Lifetime  Lifetime `yaml:"lifetime"`
}

// Limits converts l to [sandbox.Limits].
func (l Limits) Limits() sandbox.Limits {
	return sandbox.Limits{
		CPUs:        l.CPUs,
		MemoryBytes: int64(l.Memory),
		DiskBytes:   int64(l.Disk),
		Processes:   l.Processes,
		Idle:        time.Duration(l.Idle),
		Lifetime:    time.Duration(l.Lifetime),
	}
}

// within returns l with each limit lowered to that of maximum, whose zero fields
// are no maximum.
func (l Limits) within(maximum Limits) Limits {
	lower(&l.CPUs, maximum.CPUs)
	lower(&l.Memory, maximum.Memory)
	lower(&l.Disk, maximum.Disk)
	lower(&l.Processes, maximum.Processes)
	lower(&l.Idle, maximum.Idle)
	lower(&l.Lifetime, maximum.Lifetime)
	return l
}

func lower[T cmp.Ordered](limit *T, maximum T) {
	var none T
	if maximum > none && *limit > maximum {
		*limit = maximum
	}
}

// E2B configures the driver e2b; empty fields select E2B's cloud.
type E2B struct {
	// Domain is the cloud's domain. APIURL is the URL of its control plane, and
	// SandboxURL receives all traffic to sandboxes; if empty, they are derived
	// from Domain.
	Domain     string `yaml:"domain"`
	APIURL     string `yaml:"api_url"`
	SandboxURL string `yaml:"sandbox_url"`
	// Key is the API key. Only the environment sets it.
	Key string `yaml:"-"`
}

// Docker configures the drivers docker and podman.
type Docker struct {
	// Host is the container engine's address, like unix:///var/run/docker.sock.
	// If it is empty, the driver looks where the engine's tools look:
	// DOCKER_HOST, the current context, and the usual sockets.
	Host string `yaml:"host"`
	// Runtime is the OCI runtime, like runsc; empty is the container engine's
	// default.
	Runtime string `yaml:"runtime"`
	// Inside is a directory that the container engine sees as Outside. It is for
	// a server that runs in a container: workspaces are mounted from there. If
	// Outside is empty, both have the same path.
	Inside  string `yaml:"inside"`
	Outside string `yaml:"outside"`
	// Workspaces is where workspaces are kept: "directory", on this machine, or
	// "volume", in the container engine. Empty is volume for an engine that is
	// reached by network, unless Outside is set.
	Workspaces string `yaml:"workspaces"`
}

// Kubernetes configures the driver kubernetes.
type Kubernetes struct {
	// Kubeconfig is a file with clusters and credentials, and Context a context of it.
	// If Kubeconfig is empty, it is the file that kubectl uses, or the ServiceAccount
	// of the Pod in which the server runs. If Context is empty, it is the current one.
	Kubeconfig string `yaml:"kubeconfig"`
	Context    string `yaml:"context"`
	// Namespace is where Pods are made; empty is that of the context.
	Namespace string `yaml:"namespace"`
	// RuntimeClass is the runtime class of sandboxes, of which the operator knows that
	// it has a kernel of its own. AllowContainerBoundary accepts sandboxes without one.
	RuntimeClass           string `yaml:"runtime_class"`
	AllowContainerBoundary bool   `yaml:"allow_container_boundary"`
	// GuestImage is the image of this version of Glovebox.
	GuestImage string `yaml:"guest_image"`
	// PullSecrets are names of Secrets with credentials for registries.
	PullSecrets []string `yaml:"pull_secrets"`
	// WorkspaceClaim is the PersistentVolumeClaim that has workspaces.
	WorkspaceClaim string `yaml:"workspace_claim"`
	// Transport is how the server reaches sandboxes: [TransportExec] or
	// [TransportDirect].
	Transport string `yaml:"transport"`
	// StartTimeout is how long a Pod may take to start.
	StartTimeout Duration `yaml:"start_timeout"`
}

// The transports of the driver kubernetes: by the API server, and by the addresses of
// Pods.
const (
	TransportExec   = "exec"
	TransportDirect = "direct"
)

// Images configures the images of a driver without a container engine.
type Images struct {
	// Space is the maximum disk space of all images, in bytes. Beyond it, the
	// least recently used images are removed. Zero is no limit.
	Space Bytes `yaml:"space"`
	// MaxSize and MaxFiles limit each unpacked image.
	MaxSize  Bytes `yaml:"max_size"`
	MaxFiles int   `yaml:"max_files"`
	// Registries are the only allowed registries, at any address. If empty, all
	// registries with public addresses are allowed.
	Registries []string `yaml:"registries"`
	// Mirrors are tried before the registry under which they are listed.
	Mirrors map[string][]string `yaml:"mirrors"`
}

// Workspace configures workspaces. Zero is no limit.
type Workspace struct {
	// Size and Files limit one workspace. TotalSize and TotalFiles limit all
	// workspaces of one principal together.
	Size       Bytes `yaml:"size"`
	Files      int64 `yaml:"files"`
	TotalSize  Bytes `yaml:"total_size"`
	TotalFiles int64 `yaml:"total_files"`
	// TTL is how long an unused workspace is kept.
	TTL Duration `yaml:"ttl"`
	// Dir is the directory of workspaces, if it is not in the state directory.
	// Secret is the key that mcp-code-runner uses to name its directories. If
	// Secret is set, Dir is a directory of that server. Only that server's
	// settings set them.
	Dir    string `yaml:"-"`
	Secret string `yaml:"-"`
}

// Quota returns the limits of one workspace.
func (w Workspace) Quota() sandbox.WorkspaceUsage {
	return sandbox.WorkspaceUsage{Bytes: int64(w.Size), Files: w.Files}
}

// Total returns the limits of all workspaces of a principal together.
func (w Workspace) Total() sandbox.WorkspaceUsage {
	return sandbox.WorkspaceUsage{Bytes: int64(w.TotalSize), Files: w.TotalFiles}
}

func (w Workspace) validate() error {
	for name, n := range map[string]int64{
		"size": int64(w.Size), "files": w.Files, "total_size": int64(w.TotalSize), "total_files": w.TotalFiles, "ttl": int64(w.TTL),
	} {
		if n < 0 {
			return invalid("workspace."+name, "must not be negative", "write 0 for no limit")
		}
	}
	return nil
}

// DriverAuto selects the best driver that works here.
const DriverAuto = "auto"

// Requirements on the boundary of sandboxes.
const (
	IsolationAny    = "any"
	IsolationKernel = "kernel"
)

// ProfileNative is the name of Glovebox's own tools.
const ProfileNative = "native"

// Default returns the default configuration. getenv is [os.Getenv], or a test's.
func Default(getenv func(string) string) Config {
	d := sandbox.DefaultLimits()
	return Config{
		Driver:   DriverAuto,
		StateDir: defaultStateDir(getenv),
		LogLevel: slog.LevelWarn,

		RequireIsolation: IsolationAny,

		Sandbox: Sandbox{
			Default: Limits{
				CPUs:      d.CPUs,
				Memory:    Bytes(d.MemoryBytes),
				Disk:      Bytes(d.DiskBytes),
				Processes: d.Processes,
				Idle:      Duration(d.Idle),
				Lifetime:  Lifetime(d.Lifetime),
			},
			Count:      64,
			Queue:      Duration(20 * time.Second),
			EvictAfter: Duration(10 * time.Second),
			Hibernate:  HibernateMemory,

			HibernateSpace: 20 << 30,
		},
		Network: defaultNetwork(),
		Pool:    Pool{Size: 4, Prototypes: true},
		Update:  Update{Notice: true},
		Run: Run{
			Timeout:  Duration(30 * time.Second),
			LogSize:  64 << 20,
			LogSpace: defaultLogSpace,
			Keep:     Duration(24 * time.Hour),
		},
		Workspace: Workspace{
			Size:       10 << 30,
			Files:      100_000,
			TotalSize:  50 << 30,
			TotalFiles: 500_000,
		},
		Saved:     Saved{CompressAfter: Duration(time.Hour)},
		Snapshots: Snapshots{Count: 100, Size: 16 << 30, Keep: Duration(7 * 24 * time.Hour)},
		Audit:     Audit{FileSize: 64 << 20},
		MCP:       MCP{Profile: ProfileNative},
		Images:    Images{Space: 20 << 30, MaxSize: 32 << 30, MaxFiles: 500_000},
		Templates: Templates{ContextSize: 1 << 30, ImageSpace: 10 << 30, Builds: 2, BuildTime: Duration(30 * time.Minute), ReadyTime: Duration(time.Minute)},
		Server:    defaultServer(),

		Kubernetes: Kubernetes{Transport: TransportExec, StartTimeout: Duration(2 * time.Minute)},
	}
}

// defaultStateDir follows the XDG base directory rules where they apply, and the
// system's conventions elsewhere. It returns "" if there is no home directory.
func defaultStateDir(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "glovebox")
	}
	if runtime.GOOS == "windows" {
		if dir := getenv("LOCALAPPDATA"); dir != "" {
			return filepath.Join(dir, "Glovebox")
		}
		return ""
	}
	home := homeDir(getenv)
	if home == "" {
		return ""
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "Glovebox")
	}
	return filepath.Join(home, ".local", "state", "glovebox")
}

// DefaultFile returns the path of the configuration file if none is named, or ""
// if there is no home directory.
func DefaultFile(getenv func(string) string) string {
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "glovebox", "config.yaml")
	}
	if home := homeDir(getenv); home != "" {
		return filepath.Join(home, ".config", "glovebox", "config.yaml")
	}
	return ""
}

// homeDir returns the user's home directory, or "". Windows sets no HOME.
func homeDir(getenv func(string) string) string {
	if home := getenv("HOME"); home != "" || runtime.GOOS != "windows" {
		return home
	}
	return getenv("USERPROFILE")
}

// maxQueue is the longest time that a caller may wait for a free place. It leaves
// time to make the sandbox afterwards.
const maxQueue = time.Minute

// Validate returns the first problem of c, or nil. The error wraps
// [sandbox.Invalid], names the field as in the file, and has a hint.
func (c *Config) Validate() error {
	if c.Driver == "" {
		return invalid("driver", "is empty", "leave it out, or set it to %q", DriverAuto)
	}
	if r := c.RequireIsolation; r != IsolationAny && r != IsolationKernel {
		return invalid("require_isolation", fmt.Sprintf("%q is not an isolation", r),
			"write %s for sandboxes with their own kernel, or %s", IsolationKernel, IsolationAny)
	}
	if c.StateDir == "" {
		return invalid("state_dir", "is not set, and there is no home directory for its default",
			"pass --state-dir or set GLOVEBOX_STATE_DIR")
	}
	if !filepath.IsAbs(c.StateDir) {
		return invalid("state_dir", fmt.Sprintf("%q is not an absolute path", c.StateDir),
			"write the complete path, from / or a drive")
	}
	if c.Sandbox.Count < 1 {
		return invalid("sandbox.count", fmt.Sprintf("%d is not a number of sandboxes", c.Sandbox.Count),
			"set it to 1 or more")
	}
	if c.Sandbox.Queue < 0 || time.Duration(c.Sandbox.Queue) > maxQueue {
		return invalid("sandbox.queue", fmt.Sprintf("%v is not a waiting time", c.Sandbox.Queue), "write it like 20s, at most %v, or 0 for no wait", maxQueue)
	}
	if h := c.Sandbox.Hibernate; h != HibernateMemory && h != HibernateDisk {
		return invalid("sandbox.hibernate", fmt.Sprintf("%q is not a place", h), "write "+HibernateMemory+" or "+HibernateDisk)
	}
	if err := c.Sandbox.checkHibernation(); err != nil {
		return err
	}
	if c.Sandbox.EvictAfter < 0 {
		return invalid("sandbox.evict_after", fmt.Sprintf("%v is not a time", c.Sandbox.EvictAfter), "write it like 10s, or 0 for never")
	}
	most := c.Sandbox.Maximum.Limits()
	if err := c.Sandbox.Default.Limits().Check(most); err != nil {
		return invalid("sandbox.default", err.Error(), "%s",
			cmp.Or(sandbox.HintOf(err), "set the limit between its minimum and sandbox.maximum"))
	}
	for _, name := range c.Sandbox.AllowUnenforced {
		if !slices.Contains(sandbox.ControlNames(), name) {
			return invalid("sandbox.allow_unenforced", fmt.Sprintf("%q is not a control", name),
				"use: %s", joinControls())
		}
	}
	if err := c.Network.validate(); err != nil {
		return err
	}
	for i := range c.Secrets {
		if err := c.Secrets[i].validate(); err != nil {
			return err
		}
	}
	if c.Pool.Size < 0 {
		return invalid("pool.size", fmt.Sprintf("%d is not a number of sandboxes", c.Pool.Size), "set it to 0 for none, or more")
	}
	if err := c.Run.validate(); err != nil {
		return err
	}
	if c.Docker.Outside != "" && !filepath.IsAbs(c.Docker.Inside) {
		return invalid("docker.inside", fmt.Sprintf("%q is not an absolute path, but docker.outside is set", c.Docker.Inside),
			"set SANDBOX_ROOT to the directory that the container engine knows as SANDBOX_HOST_PATH, or unset both")
	}
	if w := c.Docker.Workspaces; w != "" && w != "directory" && w != "volume" {
		return invalid("docker.workspaces", fmt.Sprintf("%q is neither directory nor volume", w), "write directory or volume, or leave it empty")
	}
	if t := c.Kubernetes.Transport; t != TransportExec && t != TransportDirect {
		return invalid("kubernetes.transport", fmt.Sprintf("%q is neither %s nor %s", t, TransportExec, TransportDirect), "write exec, or direct if the server reaches the addresses of Pods")
	}
	if c.Kubernetes.StartTimeout <= 0 {
		return invalid("kubernetes.start_timeout", fmt.Sprintf("%v is not a positive duration", c.Kubernetes.StartTimeout), "write it like 2m")
	}
	if err := c.Languages.validate(); err != nil {
		return err
	}
	if c.Images.Space < 0 {
		return invalid("images.space", fmt.Sprintf("%v is not a size", c.Images.Space), "write it like 20GiB, or 0 for no limit")
	}
	if c.Images.MaxSize <= 0 || c.Images.MaxFiles <= 0 {
		return invalid("images.max_size and images.max_files", "must be above zero", "leave them out for the defaults")
	}
	if err := c.Snapshots.validate(); err != nil {
		return err
	}
	if err := c.Saved.validate(); err != nil {
		return err
	}
	if err := c.Workspace.validate(); err != nil {
		return err
	}
	if c.MCP.Profile == "" {
		return invalid("mcp.profile", "is empty", "leave it out, or set it to %q", ProfileNative)
	}
	if err := c.Audit.validate(); err != nil {
		return err
	}
	if err := c.Usage.validate(); err != nil {
		return err
	}
	if err := c.Templates.validate(); err != nil {
		return err
	}
	if p := c.MCP.ToolPrefix; p != "" {
		if err := CheckToolPrefix("configuration: mcp.tool_prefix", p); err != nil {
			return err
		}
	}
	if err := CheckApprove("configuration: mcp.approve", c.MCP.Approve); err != nil {
		return err
	}
	return c.Server.validate()
}

// CheckToolPrefix returns an error of kind Invalid, about field, if p cannot be in
// front of the names of tools.
func CheckToolPrefix(field, p string) error {
	if toolPrefix.MatchString(p) {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %q is no prefix of names", field, p),
		"write a letter, and then at most 31 letters, digits, _ and -; clients accept no other names of tools")
}

// toolPrefix matches what all clients accept at the beginning of a tool's name.
var toolPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)

func invalid(field, problem, hint string, args ...any) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "configuration: %s: %s", field, problem), hint, args...)
}

func joinControls() string {
	var names []string
	for _, n := range sandbox.ControlNames() {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// homePath replaces a leading ~/ by the home directory. Shells expand it in
// flags, but not in files.
func homePath(path string, getenv func(string) string) string {
	if len(path) > 1 && path[0] == '~' && os.IsPathSeparator(path[1]) {
		if home := homeDir(getenv); home != "" {
			return filepath.Join(home, path[2:])
		}
	}
	return path
}
