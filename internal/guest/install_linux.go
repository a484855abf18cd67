package guest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// installed are files that a box gets instead of those of its image. No process of
// such a box can become another user, so the users of the image are of no use.
var installed = map[string]string{
	"passwd":      fmt.Sprintf("%s:x:%d:%[2]d::/home/user:/bin/sh\n%s:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", sandbox.User, sandbox.UserUID, account.RootName),
	"group":       fmt.Sprintf("%s:x:%d:\n%s:x:0:\nnogroup:x:65534:\n", sandbox.User, sandbox.UserUID, account.RootName),
	"resolv.conf": "# This sandbox has no network.\n",
}

// The file below the directory of the guest that no program of the box reaches. Its
// path is known to package driver/kubernetes.
const (
	closedDir  = "closed"
	closedName = "log"
)

// ownDir makes the directory of an argument MODE:DIRECTORY.
func ownDir(arg string) error {
	text, dir, _ := strings.Cut(arg, ":")
	mode, err := strconv.ParseUint(text, 8, 12)
	if err != nil || !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is not MODE:DIRECTORY", arg)
	}
	dir = filepath.Join(dir, "own")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.NewSyscallError("chmod", unix.Chmod(dir, uint32(mode)))
}

// closedFile makes an empty file that only root reaches.
func closedFile(dir string) error {
	dir = filepath.Join(dir, closedDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, closedName), nil, 0o600); err != nil {
		return err
	}
	return os.Chmod(dir, 0)
}

// linkedResolvers is the file that replaces resolv.conf in a box with a network. Its
// name is known to package driver/container.
const linkedResolvers = "resolv.linked.conf"

// installMain copies this program, and the files that replace those of a box's
// image, to a directory. A box whose image lacks the guest gets it so. The further
// arguments are of the form MODE:DIRECTORY: there, installMain makes the directory
// "own" with these permissions. A box mounts it, because the directories of a Pod's
// volumes are root's.
func installMain(args []string) error {
	fs := flag.NewFlagSet("install-guest", flag.ContinueOnError)
	resolvers := fs.String("resolver", "", "addresses of the DNS servers of a box with a network, separated by commas")
	if err := fs.Parse(args); err != nil {
		return err
	}
	args = fs.Args()
	if len(args) == 0 {
		return errors.New("install-guest takes a directory")
	}
	for _, arg := range args[1:] {
		if err := ownDir(arg); err != nil {
			return err
		}
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(args[0], Program), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		return errors.Join(err, to.Close())
	}
	if err := to.Close(); err != nil {
		return err
	}
	// A node mounts a file there that every program may write, without a bound, if it
	// reaches it.
	if err := closedFile(args[0]); err != nil {
		return err
	}
	files := maps.Clone(installed)
	if *resolvers != "" {
		if files[linkedResolvers], err = resolverText(*resolvers); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
