package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/imagebuild"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// defaultUser runs the programs of templates, and home is its home.
const (
	defaultUser = "user"
	home        = "/home/user"
)

// Bounds on the files of one COPY, and on the environment of an image.
const (
	maxCopied   = 200_000 // files
	maxDepth    = 64      // directories
	unpackRatio = 4       // unpacked bytes, as a multiple of Options.ContextSize
	maxRatio    = 200     // unpacked bytes, as a multiple of the archive's
	maxEnv      = 256 << 10
)

// A work is a build in progress.
type work struct {
	imagebuild.Bench
	s         *Service
	log       *buildLog
	principal sandbox.Principal
	build     string
	setup     Setup
}

// String returns the step for the log, without the values of variables, which may be
// secrets.
func (s Step) String() string {
	kind, args := strings.ToUpper(s.Type), s.Args
	if kind == "ENV" || kind == "ARG" {
		args = nil
		for i := 0; i < len(s.Args); i += 2 {
			args = append(args, s.Args[i])
		}
	}
	text := strings.TrimSpace(kind + " " + strings.Join(args, " "))
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// longest are the bounds on the first argument of steps, in bytes.
var longest = map[string]int{"WORKDIR": maxPath, "USER": maxUser}

func (s Step) check() error {
	wrong := func(format string, args ...any) error { return sandbox.Errorf(sandbox.Invalid, format, args...) }
	for _, arg := range s.Args {
		if strings.ContainsRune(arg, 0) {
			return wrong("%s: an argument has a zero byte", s.Type)
		}
	}
	switch strings.ToUpper(s.Type) {
	case "RUN", "WORKDIR", "USER":
		if len(s.Args) == 0 || s.Args[0] == "" {
			return wrong("%s: has no arguments", s.Type)
		}
		// The user and the directory become a part of each build's record.
		if most := longest[strings.ToUpper(s.Type)]; most > 0 && len(s.Args[0]) > most {
			return wrong("%s: the argument has %d bytes; the maximum is %d", s.Type, len(s.Args[0]), most)
		}
	case "ENV", "ARG":
		if len(s.Args) == 0 || len(s.Args)%2 != 0 {
			return wrong("%s: must have names and values", s.Type)
		}
		for i := 0; i < len(s.Args); i += 2 {
			if name := s.Args[i]; name == "" || strings.Contains(name, "=") {
				return wrong("%s: %s is not the name of a variable", s.Type, quote(name))
			}
		}
	case "COPY", "ADD":
		if len(s.Args) < 2 {
			return wrong("%s: must have a source and a destination", s.Type)
		}
		if len(s.Args) > 3 && s.Args[3] != "" {
			if n, err := strconv.ParseUint(s.Args[3], 8, 16); err != nil || n > 0o7777 {
				return wrong("%s: %s is not a file mode", s.Type, quote(s.Args[3]))
			}
		}
		return CheckHash(s.FilesHash)
	default:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the step %s is not supported", quote(s.Type)), "use COPY, RUN, ENV, WORKDIR or USER")
	}
	return nil
}

// baseScript adds the account "user", which programs run as, to an image without it.
const baseScript = `set -e
if ! grep -q '^user:' /etc/passwd 2>/dev/null; then
	echo 'user:x:1000:1000::/home/user:/bin/sh' >>/etc/passwd
	grep -q '^user:' /etc/group 2>/dev/null || echo 'user:x:1000:' >>/etc/group
fi
mkdir -p /home/user
chown user /home/user`

// base chooses the base of a plan.
func (k *work) base(ctx context.Context, plan Plan) error {
	ref := plan.FromImage
	if plan.FromTemplate != "" {
		_, b, err := k.s.Resolve(ctx, k.principal, plan.FromTemplate)
		switch {
		case err == nil && b.Image == "":
			return gone(plan.FromTemplate)
		case err == nil:
			return k.fromTemplate(ctx, plan.FromTemplate, b)
		case sandbox.KindOf(err) != sandbox.NotFound:
			return err
		}
		ref = plan.FromTemplate
		if image := serverNames[ref]; image != "" {
			ref = image
		}
	}
	k.log.say(Info, "FROM %s", ref)
	if err := k.From(ctx, ref); err != nil {
		return err
	}
	// As at E2B, a template begins with its own user and directory, not the image's.
	k.setup.User, k.setup.WorkDir = defaultUser, home
	k.Config.User, k.Config.WorkDir = "", home
	err := k.Run(ctx, []string{"/bin/sh", "-c", baseScript}, "", "/", nil)
	if errors.Is(err, sandbox.ErrNoProgram) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the image %s has no /bin/sh", quote(ref)), "begin with an image that has a shell")
	}
	return sandbox.Wrap(err, "add the account user", "")
}

// fromTemplate begins with a build of a template.
func (k *work) fromTemplate(ctx context.Context, name string, b Build) error {
	k.log.say(Info, "FROM template %s, build %s", name, b.ID)
	from, err := SetupOf(b)
	if err != nil {
		return err
	}
	if err := k.From(ctx, b.Image); err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound {
			return gone(name)
		}
		return err
	}
	k.setup.User, k.setup.WorkDir, k.setup.Start, k.setup.Ready = from.User, from.WorkDir, from.Start, from.Ready
	return nil
}

// gone returns the error for a template whose image was removed.
func gone(name string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the image of template %s was removed from the server", quote(name)), "build the template again")
}

// Scripts of steps. Their arguments come after the name of the shell.
const (
	runScript = `if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; fi; exec /bin/sh -c "$1"`
	// dirScript makes a directory, and gives what it makes to a user.
	dirScript = `[ -d "$1" ] && exit 0
top=$1
while [ ! -d "$top" ]; do new=$top; top=$(dirname "$top"); done
mkdir -p "$1" && { chown -R "$2:$2" "$new" 2>/dev/null || chown -R "$2" "$new"; }`
	// userScript makes an account, unless it exists. A number needs none.
	userScript = `case $1 in *[!0-9]*) ;; *) exit 0 ;; esac
id -u "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$1" || adduser -D "$1"`
)

// do executes one step.
func (k *work) do(ctx context.Context, step Step) error {
	args := step.Args
	switch strings.ToUpper(step.Type) {
	case "RUN":
		user := k.setup.User
		if len(args) > 1 && args[1] != "" {
			user = args[1]
		}
		return k.shell(ctx, user, k.setup.WorkDir, runScript, args[0])
	case "ENV", "ARG":
		return k.env(args)
	case "WORKDIR":
		dir := args[0]
		if !path.IsAbs(dir) {
			dir = path.Join(k.setup.WorkDir, dir)
		}
		if dir = path.Clean(dir); len(dir) > maxPath {
			return sandbox.Errorf(sandbox.Invalid, "the directory has %d bytes; the maximum is %d", len(dir), maxPath)
		}
		user, _, _ := strings.Cut(k.setup.User, ":")
		k.setup.WorkDir, k.Config.WorkDir = dir, dir
		return k.shell(ctx, "", "/", dirScript, dir, user)
	case "USER":
		user, _, _ := strings.Cut(args[0], ":")
		k.setup.User = args[0]
		return k.shell(ctx, "", "/", userScript, user)
	case "COPY", "ADD":
		return k.copy(ctx, step)
	}
	return step.check()
}

// shell runs a script with arguments as a user; "" is root.
func (k *work) shell(ctx context.Context, user, dir, script string, args ...string) error {
	env := map[string]string{}
	for _, e := range k.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	err := k.Run(ctx, append([]string{"/bin/sh", "-c", script, "sh"}, args...), user, dir, env)
	if !errors.Is(err, sandbox.Conflict) || sandbox.HintOf(err) != "" {
		return err
	}
	if k.Network == sandbox.NetworkNone || k.Network == "" {
		return sandbox.WithHint(err, "read the log; if the command needs a network, the operator must allow one (--allow-network)")
	}
	return sandbox.WithHint(err, "read the log")
}

// variable matches a variable in the value of an ENV.
var variable = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// defaultPath is the PATH of an image that says none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// env sets variables. A value may name variables of before the step.
func (k *work) env(args []string) error {
	known := map[string]string{"PATH": defaultPath}
	for _, e := range k.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		known[name] = value
	}
	size := 0
	for i := 0; i < len(args); i += 2 {
		// Values can double with each step, so the length is checked before they
		// are put together.
		for _, name := range variable.FindAllStringSubmatch(args[i+1], -1) {
			size += len(known[name[1]+name[2]])
		}
		if size += len(args[i]) + len(args[i+1]); size > maxEnv {
			return sandbox.Errorf(sandbox.Invalid, "the variables have more than %d bytes", maxEnv)
		}
		value := variable.ReplaceAllStringFunc(args[i+1], func(text string) string {
			return known[strings.Trim(text, "${}")]
		})
		text := args[i] + "=" + value
		if n := slices.IndexFunc(k.Config.Env, func(e string) bool { return strings.HasPrefix(e, args[i]+"=") }); n >= 0 {
			k.Config.Env[n] = text
		} else {
			k.Config.Env = append(k.Config.Env, text)
		}
	}
	total := 0
	for _, e := range k.Config.Env {
		total += len(e)
	}
	if total > maxEnv {
		return sandbox.Errorf(sandbox.Invalid, "the variables have more than %d bytes", maxEnv)
	}
	return nil
}

// copy copies files of an uploaded archive.
func (k *work) copy(ctx context.Context, step Step) error {
	dir := filepath.Join(k.s.workDir(), k.build)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the end of the build, and the sweep, remove it again
	if err := k.unpack(ctx, step.FilesHash, dir); err != nil {
		return err
	}
	mode := int64(-1)
	if len(step.Args) > 3 && step.Args[3] != "" {
		n, err := strconv.ParseInt(step.Args[3], 8, 16)
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s is not a file mode", quote(step.Args[3]))
		}
		mode = n
	}
	owner := k.setup.User
	if len(step.Args) > 2 && step.Args[2] != "" {
		owner = step.Args[2]
	}
	to := step.Args[1]
	into := to == "" || to == "." || strings.HasSuffix(to, "/")
	if !path.IsAbs(to) {
		to = path.Join("/", k.setup.WorkDir, to)
	}
	if to = path.Clean(to); into && to != "/" {
		to += "/"
	}
	return k.Copy(ctx, imagebuild.Copy{From: dir, Source: sourceOf(step.Args[0]), To: to, Owner: owner, Mode: mode})
}

// sourceOf returns the file or the directory that the source of a COPY names: the
// path above the first part with a pattern. The SDK put only files that match into
// the archive.
func sourceOf(source string) string {
	parts := strings.Split(path.Clean(source), "/")
	for i, part := range parts {
		if strings.ContainsAny(part, `*?[{`) {
			parts = parts[:i]
			break
		}
	}
	if len(parts) == 0 {
		return "."
	}
	return path.Join(parts...)
}

// unpack unpacks an uploaded archive into a directory of this machine.
func (k *work) unpack(ctx context.Context, hash, to string) error {
	f, err := os.Open(filepath.Join(k.s.filesOf(k.principal), hash))
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the files with the hash %.12s… are not here", hash), "upload them, and build again")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	dir, err := safepath.OpenDir(to)
	if err != nil {
		return err
	}
	defer dir.Close()
	staging, remove, err := dir.Staging()
	if err != nil {
		return err
	}
	_, err = dir.Extract(ctx, f, staging, safepath.Limits{
		Files: maxCopied, Bytes: unpackRatio * k.s.opts.ContextSize, Depth: maxDepth, Ratio: maxRatio, AnyBytes: true,
	})
	remove()
	switch {
	case ctx.Err() != nil || explainWrite(err) != err:
		return err
	case err != nil:
		return sandbox.Errorf(sandbox.Invalid, "unpack the files: %w", err)
	}
	return checkLinks(to)
}

// checkLinks refuses links that lead out of the files to copy.
func checkLinks(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() != fs.ModeSymlink {
			return err
		}
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		if inside := path.Join(path.Dir(name), target); path.IsAbs(target) || inside == ".." || strings.HasPrefix(inside, "../") {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the link %s leads out of the files to copy, to %s", quote(name), quote(target)),
				"copy the file itself (resolveSymlinks), or make the link with makeSymlink")
		}
		return nil
	})
}

// label marks the image as one of a template, which also makes its ID its own.
func (k *work) label(template string) {
	if k.Config.Labels == nil {
		k.Config.Labels = map[string]string{}
	}
	k.Config.Labels["glovebox.template"] = fmt.Sprintf("%s build %s", template, k.build)
}
