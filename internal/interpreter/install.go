package interpreter

import (
	_ "embed"
	"net/url"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PackageEnv returns the variables by which programs find installed packages.
// The variables of the runner and of the caller take precedence.
func PackageEnv() map[string]string {
	return map[string]string{
		"PYTHONUSERBASE": language.PackageDir,
		"NODE_PATH":      language.NodeModules,
	}
}

// An Installer installs packages into [language.PackageDir]. It runs a program of this
// package, which runs the sandbox's package manager. The last lines of its
// output are the result, one line for each package. A line is "installed NAME
// VERSION", or "present NAME VERSION" for a requested package that was there
// before.
type Installer struct {
	// Name is the package manager, Language a runner that uses it.
	Name, Language string
	// commands are commands that run the program. The first one that the sandbox
	// has is used. The packages are its parameters.
	commands [][]string
	// needs is the required program, and remedy the Debian package that has it.
	needs, remedy string
	// hosts are the hosts of the default index.
	hosts []string
	// indexEnv is the variable for the operator's index.
	indexEnv string
	env      map[string]string
}

//go:embed install/pip.py
var pipProgram string

//go:embed install/npm.js
var npmProgram string

//go:embed install/apt.sh
var aptProgram string

// Installers returns all installers.
func Installers() []Installer {
	return []Installer{
		{
			Name: "pip", Language: language.Python,
			commands: [][]string{{"python3", "-c", pipProgram}},
			needs:    "python3", remedy: "python3-pip",
			hosts:    []string{"pypi.org:443", "files.pythonhosted.org:443"},
			indexEnv: "PIP_INDEX_URL",
			env: map[string]string{
				"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1", "PIP_NO_COLOR": "1",
				"PIP_PROGRESS_BAR": "off", "PIP_NO_WARN_SCRIPT_LOCATION": "1",
				// pip changes only language.PackageDir, not the system's environment.
				"PIP_BREAK_SYSTEM_PACKAGES": "1",
			},
		},
		{
			Name: "npm", Language: language.JavaScript,
			commands: [][]string{{"node", "-e", npmProgram, "--"}, {"bun", "-e", npmProgram, "--"}},
			needs:    "npm", remedy: "npm",
			hosts:    []string{"registry.npmjs.org:443"},
			indexEnv: "NPM_CONFIG_REGISTRY",
			env: map[string]string{
				"NPM_CONFIG_PREFIX": language.PackageDir, "NPM_CONFIG_CACHE": "/tmp/.npm", "NPM_CONFIG_FUND": "false", "NPM_CONFIG_AUDIT": "false",
				"NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_PROGRESS": "false", "NPM_CONFIG_COLOR": "false",
				// Bun puts node_modules into the first of these directories.
				"BUN_INSTALL_GLOBAL_DIR": language.PackageDir + "/lib", "BUN_INSTALL_BIN": language.PackageDir + "/bin", "BUN_INSTALL_CACHE_DIR": "/tmp/.bun",
			},
		},
		{
			Name: "apt", Language: language.Bash,
			commands: [][]string{{"/bin/sh", "-c", aptProgram, "apt"}},
			needs:    "apt-get", remedy: "apt",
			hosts:    []string{"deb.debian.org", "security.debian.org"},
			indexEnv: "GLOVEBOX_APT_SOURCE",
			env:      map[string]string{"GLOVEBOX_ENV": language.PackageDir, "DEBIAN_FRONTEND": "noninteractive"},
		},
	}
}

// FindInstaller returns the installer of that name. If the name is unknown, the
// error is of kind Invalid.
func FindInstaller(name string) (Installer, error) {
	var names []string
	for _, i := range Installers() {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Installer{}, sandbox.Errorf(sandbox.Invalid, "%q is not one of %s", name, strings.Join(names, ", "))
}

// Argvs returns the commands that install packages, in order of preference. A
// sandbox may lack the program of a command. CheckPackages must have accepted
// the packages.
func (i Installer) Argvs(packages []string) [][]string {
	var argvs [][]string
	for _, command := range i.commands {
		argvs = append(argvs, slices.Concat(command, packages))
	}
	return argvs
}

// Environ returns the environment of the installer. Index is the operator's, or
// empty.
func (i Installer) Environ(index string) map[string]string {
	env := map[string]string{}
	for name, value := range i.env {
		env[name] = value
	}
	if index != "" {
		env[i.indexEnv] = index
	}
	return env
}

// Network returns the network that the installer needs for these packages, with
// the operator's index or without. For files in the sandbox it is none.
func (i Installer) Network(index string, packages []string) (sandbox.Network, error) {
	if !slices.ContainsFunc(packages, func(p string) bool { return !isLocal(p) }) {
		return sandbox.NetworkNone, nil
	}
	if index == "" {
		return sandbox.ParseNetwork(i.hosts...)
	}
	// apt's index is a line of sources.list that contains the address.
	for field := range strings.FieldsSeq(index) {
		u, err := url.Parse(field)
		switch {
		case err != nil:
		case u.Scheme == "file" || u.Scheme == "copy": // apt copies local files
			return sandbox.NetworkNone, nil
		case u.Host != "":
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80"}[u.Scheme]
			}
			if port == "" {
				port = "443"
			}
			return sandbox.ParseNetwork(u.Hostname() + ":" + port)
		}
	}
	return "", sandbox.Errorf(sandbox.Invalid, "packages: the index %q has no host", index)
}

// isLocal reports whether a package is a file in the sandbox.
func isLocal(p string) bool {
	return strings.HasPrefix(p, "/") || strings.HasPrefix(p, "./") || strings.HasPrefix(p, "file:/")
}

// Missing returns the error for a sandbox of the given image without the package
// manager. It is of kind Unsupported.
func (i Installer) Missing(image string) error {
	err := sandbox.Errorf(sandbox.Unsupported, "packages: this sandbox has no %s", i.Name)
	if image == sandbox.ImageHost {
		return sandbox.WithHint(err, "install it on this machine (Debian and Ubuntu: apt-get install %s); new sandboxes then have it", i.remedy)
	}
	return sandbox.WithHint(err, "use an image that has it")
}

// Needs returns the program that the installer requires.
func (i Installer) Needs() string { return i.needs }

// Bounds on a request for packages.
const (
	maxPackages    = 100
	maxPackageName = 512
)

// CheckPackages returns an error of kind Invalid if packages is not a valid
// list. A name must not begin with a dash: the package manager would take it as
// an option.
func CheckPackages(packages []string) error {
	if len(packages) == 0 || len(packages) > maxPackages {
		return sandbox.Errorf(sandbox.Invalid, "packages: there are %d, but there must be 1 to %d", len(packages), maxPackages)
	}
	for _, p := range packages {
		bad := p == "" || len(p) > maxPackageName || p[0] == '-' || p != strings.TrimSpace(p) ||
			strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
		if bad {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "packages: %.60q is not a package name", p),
				"use names with or without versions, such as numpy==2.1.0 or lodash@4, or paths of files in the sandbox")
		}
	}
	return nil
}
