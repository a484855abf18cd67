package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about a container engine that affects the quality of its
// boxes.
type Check struct {
	Name string
	// OK means that nothing is wrong. Note marks a check that is OK but worth
	// knowing. Fatal marks one that is not OK and prevents all boxes.
	OK, Note, Fatal bool
	// Detail describes the finding and its consequences.
	Detail string
	// Fix is a command or a step that corrects it; empty if there is none.
	Fix string
}

// Doctor checks the container engine that a driver with these options would use. It
// changes nothing. It uses only Engine, Host, Runtime and Getenv of opts.
func Doctor(ctx context.Context, opts Options) []Check {
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	e, err := dockerapi.Find(ctx, opts.find())
	if err != nil {
		c := Check{Name: opts.Engine, Fatal: true, Detail: err.Error(), Fix: sandbox.HintOf(err)}
		if places, perr := dockerapi.Endpoints(opts.find()); perr == nil && len(places) > 1 && errors.Is(err, fs.ErrNotExist) {
			var tried []string
			for _, at := range places {
				tried = append(tried, at.Host)
			}
			c.Detail = fmt.Sprintf("%s was not found; looked at %s", opts.Engine, strings.Join(tried, ", "))
		}
		return []Check{c}
	}
	defer e.Close()
	checks := []Check{
		{Name: opts.Engine, OK: true, Detail: fmt.Sprintf("version %s at %s (%s), API %s", e.Facts.ServerVersion, e.At.Host, e.At.Source, e.ClientVersion())},
		checkGroups(e),
		checkSecurity(e),
		checkDisk(e),
	}
	if opts.Runtime != "" {
		c := Check{Name: opts.Engine + " runtime", OK: true, Detail: opts.Runtime}
		if _, ok := e.Facts.Runtimes[opts.Runtime]; !ok {
			c = Check{Name: c.Name, Fatal: true, Detail: "the engine does not know the runtime " + opts.Runtime, Fix: "add it to the engine's configuration, or leave docker.runtime out"}
		}
		checks = append(checks, c)
	}
	return checks
}

// checkGroups reports whether the container engine can limit the resources of boxes.
func checkGroups(e *dockerapi.Engine) Check {
	c := Check{Name: e.Name + " limits", OK: true, Detail: "control groups version " + e.Facts.CgroupVersion + ": CPU, memory and processes"}
	var missing []string
	for name, can := range map[string]bool{"cpu": e.Facts.CPUCfsQuota, "memory": e.Facts.MemoryLimit, "processes": e.Facts.PidsLimit} {
		if !can {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		c.OK, c.Detail = false, "it cannot limit "+strings.Join(missing, ", ")
		c.Fix = "rootless engines need control groups version 2 with these delegated: systemd's Delegate=cpu memory pids\nor allow it: --allow-unenforced " + strings.Join(missing, ",")
	case !e.Facts.SwapLimit && e.Facts.CgroupVersion == "1":
		c.OK, c.Detail = false, c.Detail+"; but not swap"
		c.Fix = "start the kernel with swapaccount=1, or turn swap off"
	}
	return c
}

// checkSecurity reports how the container engine isolates boxes from the machine.
func checkSecurity(e *dockerapi.Engine) Check {
	var found []string
	for _, o := range e.Facts.SecurityOptions {
		for part := range strings.SplitSeq(o, ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				found = append(found, name)
			}
		}
	}
	if strings.HasPrefix(e.At.Source, "rootless") && !slices.Contains(found, "rootless") {
		found = append(found, "rootless") // Podman does not report it
	}
	c := Check{Name: e.Name + " isolation", OK: true, Detail: strings.Join(found, ", ")}
	switch {
	case !slices.Contains(found, "seccomp"):
		c.OK, c.Fatal = false, false
		c.Detail, c.Fix = "it filters no system calls", "turn its default seccomp profile on"
	case !slices.Contains(found, "rootless") && !slices.Contains(found, "userns"):
		c.Note = true
		c.Detail += "; no user namespace: root in a sandbox is root outside, with six capabilities left"
		c.Fix = "for more, run it rootless, or set userns-remap in daemon.json, or use the driver gvisor"
	}
	return c
}

// checkDisk reports how the container engine bounds the disk of boxes.
func checkDisk(e *dockerapi.Engine) Check {
	c := Check{Name: e.Name + " disk", OK: true, Detail: "storage " + e.Facts.Driver}
	if !e.Quotas() {
		c.Note = true
		c.Detail += ", which has no quota for containers: what a sandbox writes is kept in memory, and its root is read-only"
		c.Fix = "for sandboxes with a disk of their own, keep its storage on XFS mounted with pquota"
	}
	return c
}
