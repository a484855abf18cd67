package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
)

// A box finds the guest in a directory of its own, which is a read-only mount. The
// server starts the guest's program for each connection, and sandbox-root writes all
// of the root file system: it can neither write this mount nor move the directory.
const (
	GuestDir  = "/.glovebox"
	GuestName = "glovebox-guest"
	GuestPath = GuestDir + "/" + GuestName
)

// SystemDirs are the host's directories that the image "host" contains, if they
// exist. On most systems all except /usr are links into it.
var SystemDirs = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// etcFiles are the entries of the host's /etc that programs need, and that reveal
// nothing about the host's users, secrets or network. The image has no other
// entries of /etc, and none that is not public.
var etcFiles = []string{
	"R/Makeconf", "R/Renviron", "R/ldpaths", "alternatives", "ca-certificates", "crypto-policies", "debian_version",
	"fonts", "gai.conf", "inputrc", "java-17-openjdk", "java-21-openjdk", "ld.so.cache",
	"ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic",
	"magic.mime", "mailcap", "matplotlibrc", "mime.types", "nsswitch.conf", "os-release", "pki/ca-trust",
	"pki/tls/certs", "protocols", "python3", "python3.11", "python3.12",
	"python3.13", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
	"vim",
}

// etcMade are the files that are made for the sandbox, not copied.
var etcMade = map[string]string{
	"passwd": "root:x:0:0:root:/root:/bin/sh\n" +
		"user:x:1000:1000:user:/home/user:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":       "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
	"hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"hostname":    "sandbox\n",
	"resolv.conf": "",
	"shells":      "/bin/sh\n/bin/bash\n",
	// The host's files may contain proxies with their passwords.
	"profile":     "umask 022\n",
	"bash.bashrc": "[ -z \"$PS1\" ] || PS1='\\u@\\h:\\w\\$ '\n",
}

// emptyDirs are the directories that the image does not take from the host.
var emptyDirs = map[string]fs.FileMode{
	"data":      0o755,
	"dev":       0o755,
	"etc":       0o755,
	"home":      0o755,
	"home/user": 0o755,
	"media":     0o755,
	"mnt":       0o755,
	"opt":       0o755,
	"proc":      0o555,
	"root":      0o700,
	"run":       0o755,
	"srv":       0o755,
	"sys":       0o555,
	"tmp":       0o777 | fs.ModeSticky,
	"var":       0o755,
	"var/lib":   0o755,
	"var/log":   0o755,
	"var/cache": 0o755,
	"var/tmp":   0o777 | fs.ModeSticky,
	".glovebox": 0o755,
}

// MakeHost makes the root file system of the image "host", mounted at dir for a
// time, and returns it as a tree. It is a small file system in memory, with the
// host's system directories mounted in it, all read-only. All boxes share it. It
// disappears when the last process closes it. Until then, unmounted file systems
// below the system directories stay in use on the host.
//
// For boxes whose users begin at firstUser, shown are the system directories that the
// supervisor was given trees of. All else in the image is made uid 0's of the box.
func MakeHost(dir string, firstUser int, shown []Given) (*Tree, error) {
	root, err := makeTree(dir, firstUser, shown, func() error { return fillHostRoot(dir, shown) })
	if err != nil {
		return nil, fmt.Errorf("make host image: %w", err)
	}
	return root, nil
}

// MakeGuest makes what all boxes have at [GuestDir], as MakeHost makes the
// image: a directory with the guest in it and nothing else. For boxes with users of
// their own, shown is the guest of which the supervisor was given a tree.
func MakeGuest(dir, guest string, firstUser int, shown []Given) (*Tree, error) {
	made, err := makeTree(dir, firstUser, shown, func() error {
		return bindReadOnly(guest, filepath.Join(dir, GuestName), false, shown)
	})
	if err != nil {
		return nil, fmt.Errorf("make directory of guest: %w", err)
	}
	return made, nil
}

// A Given is a tree that the server handed to the supervisor.
type Given struct {
	Source string // the path of its files on the host
	To     string // the path below the tree that is made
	FD     int
}

// makeTree mounts a small file system in memory at dir, has fill fill it, mounts
// shown in it, and returns all of it, read-only; nothing stays mounted at dir.
func makeTree(dir string, firstUser int, shown []Given, fill func() error) (*Tree, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	if err := unix.Mount("glovebox", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64m"); err != nil {
		return nil, fmt.Errorf("mount file system in memory: %w", err)
	}
	made, err := filledTree(dir, firstUser, shown, fill)
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		log.Warningf("unmount %s, which is not needed any more: %v", dir, err)
	}
	return made, err
}

func filledTree(dir string, firstUser int, shown []Given, fill func() error) (*Tree, error) {
	if err := fill(); err != nil {
		return nil, err
	}
	if firstUser != 0 {
		if err := giveAll(dir, firstUser); err != nil {
			return nil, err
		}
	}
	for _, given := range shown {
		if err := unix.MoveMount(given.FD, "", unix.AT_FDCWD, filepath.Join(dir, given.To), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("show %s: %w", given.Source, err)
		}
	}
	return Open(dir, unix.AT_RECURSIVE, ReadOnly)
}

// giveAll sets the owner and the group of all files below dir to id.
func giveAll(dir string, id int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, id, id)
	})
}

func fillHostRoot(dir string, shown []Given) error {
	for name, mode := range emptyDirs {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		// Chmod, because the umask applies to MkdirAll.
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	// gVisor would hide an empty /tmp behind a file system in memory, which the
	// disk limit does not count.
	if err := os.WriteFile(filepath.Join(dir, "tmp", ".keep"), nil, 0o444); err != nil {
		return err
	}
	for _, name := range SystemDirs {
		if err := showSystemDir(dir, name, shown); err != nil {
			return err
		}
	}
	for _, name := range etcFiles {
		if err := copyPublic(filepath.Join("/etc", name), filepath.Join(dir, "etc", name)); err != nil {
			return err
		}
	}
	for name, text := range etcMade {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// showSystemDir shows the host's /name in dir: a link as that link, a
// directory by mounting it, and nothing if there is none.
func showSystemDir(dir, name string, shown []Given) error {
	host := filepath.Join("/", name)
	fi, err := os.Lstat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(host)
		if err != nil {
			return err
		}
		return os.Symlink(target, filepath.Join(dir, name))
	case fi.IsDir():
		return bindReadOnly(host, filepath.Join(dir, name), true, shown)
	}
	return nil
}

// bindReadOnly mounts source at target, which it makes; but not if source is one of
// shown, of which there is a tree.
func bindReadOnly(source, target string, isDir bool, shown []Given) error {
	if isDir {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	} else if err := os.WriteFile(target, nil, 0o755); err != nil {
		return err
	}
	if slices.ContainsFunc(shown, func(given Given) bool { return given.Source == source }) {
		return nil
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	// Include the mounts below it, such as a separate /usr/local.
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", source, err)
	}
	return nil
}

// copyPublic copies a file, a link or a directory with its content, as far as all
// users may read it. It leaves out missing files.
func copyPublic(from, to string) error {
	fi, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	switch mode := fi.Mode(); {
	case mode.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.Symlink(target, to)
	case mode.IsDir():
		if mode&0o005 != 0o005 {
			return nil
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := copyPublic(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return nil
	case mode.IsRegular():
		if mode&0o004 == 0 {
			return nil
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644|mode&0o111)
	}
	return nil
}
