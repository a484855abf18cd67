package process

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" + addedPath
	addedPath   = ":" + workDir + "/.glovebox/bin" // programs of packages that are installed later
	workDir     = "/data"
)

// Config is the configuration of the processes of a guest. Package guest
// describes its fields.
type Config struct {
	MaxProcesses int
	CPUs         float64
	AsSelf       bool
	WorkDir      string
	Env          []string
	ImageDir     string
	Containers   bool
	// Before is called before a caller's program starts, with its tag, and then Watch
	// with the directory in which it starts.
	Before func(tag string)
	Watch  func(dir string)
}

// ownVariables are variables that a container engine adds to an image's.
var ownVariables = map[string]bool{"HOSTNAME": true, "TERM": true, "container": true}

// nodePath is the variable that names the package directories of Node and Bun.
// The image's directories come after those of packages that are installed later.
const nodePath = "NODE_PATH"

// threadsName is how many threads OpenMP, OpenBLAS, MKL, PyTorch and others use.
// Their default is one for each visible processor. Such threads wait by
// spinning, which uses up the box's CPU limit.
const threadsName = "OMP_NUM_THREADS"

// pipSystem lets pip install beside the packages of the distribution, which Debian
// forbids by default (PEP 668). A box has no other user, and is thrown away.
const pipSystem = "PIP_BREAK_SYSTEM_PACKAGES"

// Variables of Python: matplotlib's backend, and where modules are.
const (
	plotBackend = "MPLBACKEND"
	pythonPath  = "PYTHONPATH"
)

// withPlots adds the backend of matplotlib in dir to an environment, unless that
// names a backend. Without a dir it adds nothing.
func withPlots(env []string, dir string) []string {
	named := func(name string) int {
		return slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	if dir == "" || named(plotBackend) >= 0 {
		return env
	}
	env = append(env, plotBackend+"=module://"+guestapi.PlotModule)
	switch i := named(pythonPath); {
	case i < 0:
		env = append(env, pythonPath+"="+dir)
	case env[i] == pythonPath+"=": // a colon after it would add the current directory
		env[i] += dir
	default:
		env[i] += ":" + dir
	}
	return env
}

// environment returns the environment of a process of a. It has no variable of
// the guest's own environment, unless that is the image's (see [Config.Env]).
func (cfg *Config) environment(a *account.Account, extra map[string]string, terminal bool) []string {
	env := map[string]string{
		"PATH": defaultPath,
		"LANG": "C.UTF-8",

		pipSystem: "1",
	}
	if cfg.CPUs > 0 {
		env[threadsName] = strconv.Itoa(int(math.Ceil(cfg.CPUs)))
	}
	for _, entry := range cfg.Env {
		if k, v, ok := strings.Cut(entry, "="); ok && k != "" && !ownVariables[k] {
			env[k] = v
			if k == "PATH" && v != "" {
				env[k] += addedPath
			}
		}
	}
	env["HOME"], env["USER"], env["LOGNAME"], env["SHELL"] = a.Home, a.Name, a.Name, a.Shell
	if terminal {
		env["TERM"] = "xterm-256color"
	}
	modules := env[nodePath]
	for k, v := range extra {
		env[k] = v
	}
	if added := extra[nodePath]; added != "" && modules != "" {
		env[nodePath] = added + ":" + modules
	}
	delete(env, MarkerName)
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}
