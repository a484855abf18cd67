package gvisor

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/callfilter"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about this machine that affects the quality of its boxes.
type Check struct {
	Name string
	// OK means that nothing is wrong. Fatal marks a check that is not OK and
	// prevents all boxes.
	OK, Fatal bool
	// Detail describes the finding and its consequences.
	Detail string
	// Fix is a command or a step that corrects it; empty if there is none.
	Fix string
}

// Doctor checks the driver's requirements on this machine, without making a box.
// Only Probe and a first box show that they work together.
func Doctor() []Check {
	checks := []Check{checkUserNamespaces(), checkSeccomp(), checkGroups(), checkPython(), checkAge(pinnedVersion(), time.Now())}
	if os.Geteuid() != 0 {
		return append(checks, checkSubIDs())
	}
	return append(checks, checkBoxUsers())
}

func checkUserNamespaces() Check {
	c := Check{Name: "user namespaces", OK: true, Detail: "this user may make them"}
	if hint := diagnosis.UserNamespaceHint(); hint != "" {
		what, fix, _ := strings.Cut(hint, ": ")
		return Check{Name: c.Name, Fatal: true, Detail: what, Fix: fix}
	}
	if os.Geteuid() == 0 {
		c.Detail = "root; each sandbox's kernel still gets one of its own"
	}
	return c
}

// checkSeccomp starts a child in new namespaces. It finds out whether a surrounding
// sandbox forbids this.
func checkSeccomp() Check {
	c := Check{Name: "making namespaces", OK: true, Detail: "allowed"}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{message.SupervisorName} // the child reports that it was started by hand, and exits
	cmd.Env = []string{}
	attr, err := users.SupervisorAttributes()
	if err == nil {
		cmd.SysProcAttr = attr
		err = callfilter.Start(cmd)
	}
	if err == nil {
		_ = cmd.Wait()
		return c
	}
	err = diagnosis.ExplainStart(err)
	return Check{Name: c.Name, Fatal: true, Detail: err.Error(), Fix: sandbox.HintOf(err)}
}

func checkGroups() Check {
	c := Check{Name: "control groups", OK: true}
	if version := cgroup.Writable(); version != "" {
		c.Detail = version + ", writable: the kernel keeps CPU and memory limits"
		return c
	}
	c.OK = false
	c.Detail = "none that this user may write: memory is watched instead of limited by the kernel, and CPU limits are whole CPUs"
	c.Fix = "systemd-run --user --scope -p Delegate=yes glovebox …, or run as root"
	return c
}

// checkPython looks for Python, the most common language, in the directories that
// the image "host" shows.
func checkPython() Check {
	c := Check{Name: "Python in the image host", OK: true}
	for _, path := range []string{"/usr/local/bin/python3", "/usr/bin/python3"} {
		if unix.Access(path, unix.X_OK) == nil {
			c.Detail = path
			return c
		}
	}
	c.OK = false
	c.Detail = "no python3 in /usr/bin or /usr/local/bin; one in a home directory is not visible in a sandbox"
	c.Fix = "install your distribution's package python3"
	return c
}

// gvisorModule is the module path of gVisor.
const gvisorModule = "gvisor.dev/gvisor"

// pinnedVersion returns the version of gVisor in this program, or "" if the build
// has no record of it.
func pinnedVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == gvisorModule {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Version
		}
	}
	return ""
}

// oldAfter is the age from which gVisor should be replaced. CONTRIBUTING.md
// requires a look at it each month.
const oldAfter = 183 * 24 * time.Hour

// checkAge reports the age of gVisor. Its security fixes come with updates of this
// program.
func checkAge(version string, now time.Time) Check {
	c := Check{Name: "age of gVisor"}
	// The only versions of gVisor are v0.0.0-TIME-COMMIT.
	_, stamp, _ := strings.Cut(version, "-")
	stamp, _, _ = strings.Cut(stamp, "-")
	made, err := time.Parse("20060102150405", stamp)
	if err != nil {
		c.Detail = fmt.Sprintf("this program does not say which gVisor it has (%q)", version)
		return c
	}
	age := now.Sub(made)
	c.OK = age < oldAfter
	c.Detail = fmt.Sprintf("of %s, %d days old", made.Format(time.DateOnly), int(age.Hours()/24))
	if !c.OK {
		c.Detail += "; docs/SECURITY.md lists the fixes that it lacks"
		c.Fix = "glovebox update"
	}
	return c
}

// checkSubIDs looks for subordinate user IDs. With them, files that a sandbox
// writes outside its own layer can belong to the sandbox's users.
func checkSubIDs() Check {
	c := Check{Name: "subordinate user ids", OK: true}
	u, err := user.Current()
	if err != nil {
		return Check{Name: c.Name, Detail: err.Error()}
	}
	data, _ := os.ReadFile("/etc/subuid")
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), ":")
		if name == u.Username || name == u.Uid {
			if _, err := exec.LookPath("newuidmap"); err == nil {
				c.Detail = "a range in /etc/subuid, and newuidmap"
				return c
			}
			return Check{Name: c.Name, Detail: "a range in /etc/subuid, but no newuidmap; not needed so far", Fix: "install your distribution's package uidmap"}
		}
	}
	return Check{
		Name:   c.Name,
		Detail: "no range in /etc/subuid; not needed so far",
		Fix:    fmt.Sprintf("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s", u.Username),
	}
}

// checkBoxUsers tests whether sandboxes can have users that the host does not have.
func checkBoxUsers() Check {
	c := Check{Name: "users of sandboxes", OK: true, Detail: "apart from the host's"}
	program, err := os.Executable()
	if err == nil {
		var own *users.Range
		if own, err = users.New("/", program); err == nil {
			defer own.Close()
			var trees []*rootfs.Tree
			trees, err = own.HostTrees(program)
			for _, t := range trees {
				t.Close()
			}
		}
	}
	if err != nil {
		c.OK = false
		c.Detail = "the kernel of each sandbox runs as the host's root: " + err.Error()
		c.Fix = "run the server as an ordinary user, or on Linux 5.12 or later with /usr on ext4, xfs or btrfs"
	}
	return c
}
