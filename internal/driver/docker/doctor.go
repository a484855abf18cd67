package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about an engine that decides how well boxes can be made.
type Check struct {
	Name string
	// OK says that all is as it should be; Note, of one that is, that it is
	// worth knowing; Fatal, of one that is not, that no box can be made.
	OK, Note, Fatal bool
	// Detail says what was found and what follows from it.
	Detail string
	// Fix is a command or a step that mends it, if there is one.
	Fix string
}

// Doctor looks at the engine that a driver with these options would use. It
// changes nothing. Only Engine, Host and Getenv count.
func Doctor(ctx context.Context, opts Options) []Check {
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	e, err := findEngine(ctx, &opts)
	if err != nil {
		c := Check{Name: opts.Engine, Fatal: true, Detail: err.Error(), Fix: sandbox.HintOf(err)}
		if places, perr := endpoints(&opts); perr == nil && len(places) > 1 && errors.Is(err, fs.ErrNotExist) {
			var tried []string
			for _, at := range places {
				tried = append(tried, at.host)
			}
			c.Detail = fmt.Sprintf("%s was not found; looked at %s", opts.Engine, strings.Join(tried, ", "))
		}
		return []Check{c}
	}
	defer e.Close()
	checks := []Check{
		{Name: opts.Engine, OK: true, Detail: fmt.Sprintf("version %s at %s (%s), API %s", e.info.ServerVersion, e.at.host, e.at.source, e.ClientVersion())},
		e.checkGroups(),
		e.checkSecurity(),
		e.checkDisk(),
	}
	if opts.Runtime != "" {
		c := Check{Name: opts.Engine + " runtime", OK: true, Detail: opts.Runtime}
		if _, ok := e.info.Runtimes[opts.Runtime]; !ok {
			c = Check{Name: c.Name, Fatal: true, Detail: "the engine does not know the runtime " + opts.Runtime, Fix: "add it to the engine's configuration, or leave docker.runtime out"}
		}
		checks = append(checks, c)
	}
	return checks
}

// checkGroups says whether the engine can limit what boxes take.
func (e *engine) checkGroups() Check {
	c := Check{Name: e.name + " limits", OK: true, Detail: "control groups version " + e.info.CgroupVersion + ": CPU, memory and processes"}
	var missing []string
	for name, can := range map[string]bool{"cpu": e.info.CPUCfsQuota, "memory": e.info.MemoryLimit, "processes": e.info.PidsLimit} {
		if !can {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		c.OK, c.Detail = false, "it cannot limit "+strings.Join(missing, ", ")
		c.Fix = "rootless engines need control groups version 2 with these delegated: systemd's Delegate=cpu memory pids\nor allow it: --allow-unenforced " + strings.Join(missing, ",")
	case !e.info.SwapLimit && e.info.CgroupVersion == "1":
		c.OK, c.Detail = false, c.Detail+"; but not swap"
		c.Fix = "start the kernel with swapaccount=1, or turn swap off"
	}
	return c
}

// checkSecurity says how boxes are kept from the machine.
func (e *engine) checkSecurity() Check {
	var found []string
	for _, o := range e.info.SecurityOptions {
		for part := range strings.SplitSeq(o, ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				found = append(found, name)
			}
		}
	}
	if strings.HasPrefix(e.at.source, "rootless") && !slices.Contains(found, "rootless") {
		found = append(found, "rootless") // Podman does not say so
	}
	c := Check{Name: e.name + " isolation", OK: true, Detail: strings.Join(found, ", ")}
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

// checkDisk says how what boxes write is bounded.
func (e *engine) checkDisk() Check {
	c := Check{Name: e.name + " disk", OK: true, Detail: "storage " + e.info.Driver}
	if !e.quotas() {
		c.Note = true
		c.Detail += ", which has no quota for containers: what a sandbox writes is kept in memory, and its root is read-only"
		c.Fix = "for sandboxes with a disk of their own, keep its storage on XFS mounted with pquota"
	}
	return c
}
