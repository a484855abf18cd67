package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Sandboxes makes and runs the sandbox of a build. The engine implements it.
type Sandboxes interface {
	Create(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error)
	Follow(ctx context.Context, p sandbox.Principal, runID string, f func(sandbox.StreamName, []byte) error) error
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
	Unpack(ctx context.Context, p sandbox.Principal, id string, r io.Reader, to sandbox.UnpackTo) error
	MarkLayer(ctx context.Context, p sandbox.Principal, id string) error
	Layer(ctx context.Context, p sandbox.Principal, id string) (io.ReadCloser, error)
}

// Images provides the base and stores the result. A driver implements it.
type Images interface {
	PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error)
	ExtendImage(ctx context.Context, order driver.ImageExtension) (sandbox.Image, error)
}

// A Build describes an image to build.
type Build struct {
	Sandboxes Sandboxes
	Images    Images
	// Dir has the Dockerfile and the files that it copies. Name is the name of
	// the new image.
	Dir, Name string
	// Args are the build's arguments. The Dockerfile must have an ARG for each.
	Args map[string]string
	// Limits and Network apply to the sandbox that runs the build's programs.
	// Timeout bounds each program. Zero values are the defaults.
	Limits  sandbox.Limits
	Network sandbox.Network
	Timeout time.Duration
	// Said receives the steps of the build and the output of its programs.
	Said io.Writer
	// Progress, if not nil, receives the progress while the base is fetched.
	Progress func(sandbox.ImageProgress)
}

// stopTime bounds the stop of a build's sandbox, even if the build was cancelled.
const stopTime = 30 * time.Second

// Run builds the image. A failed build leaves no image and no sandbox. The error
// wraps [sandbox.Invalid] for a wrong Dockerfile, [sandbox.Unsupported] for an
// unsupported instruction, and [sandbox.Conflict] if a program fails.
func (b *Build) Run(ctx context.Context) (sandbox.Image, error) {
	i, err := b.run(ctx)
	return i, sandbox.Wrap(err, "build image", b.Name)
}

func (b *Build) run(ctx context.Context) (_ sandbox.Image, err error) {
	none := sandbox.Image{}
	dir, err := openDirectory(b.Dir)
	if err != nil {
		return none, err
	}
	defer dir.close()
	text, err := dir.dockerfile()
	if err != nil {
		return none, err
	}
	steps, err := parse(string(text))
	if err != nil {
		return none, err
	}
	s := state{b: b, dir: dir, global: targetArgs(), args: map[string]string{}, room: maxValues, Bench: Bench{
		Sandboxes: b.Sandboxes, Images: b.Images, Principal: sandbox.Local, Name: b.Name, By: "glovebox images build",
		Limits: b.Limits, Network: b.Network, Timeout: b.Timeout, Said: b.Said, Progress: b.Progress,
	}}
	if err := s.checkArgs(steps); err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	for n, i := range steps {
		if _, err := fmt.Fprintf(b.Said, "step %d of %d: %v\n", n+1, len(steps), i); err != nil {
			return none, err
		}
		if err := s.do(ctx, i); err != nil {
			return none, i.at(err)
		}
	}
	return s.Finish(ctx)
}

// targetArgs returns the predefined arguments of every build.
func targetArgs() map[string]string {
	return map[string]string{
		"TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "TARGETPLATFORM": "linux/" + runtime.GOARCH,
		"BUILDOS": "linux", "BUILDARCH": runtime.GOARCH, "BUILDPLATFORM": "linux/" + runtime.GOARCH,
	}
}

// A state is the result of the instructions so far.
type state struct {
	Bench
	b      *Build
	dir    *directory
	global map[string]string // arguments from before FROM
	args   map[string]string // from after it
	// ownCmd is true if CMD comes from this Dockerfile, not from the base.
	ownCmd bool
	room   int // see variables
}

func (s *state) variables() variables { return variables{s.lookup, &s.room} }

// checkArgs refuses arguments without an ARG in the Dockerfile.
func (s *state) checkArgs(steps []*instruction) error {
	has := map[string]bool{}
	for _, i := range steps {
		if i.name == "ARG" {
			list, err := words(i.text)
			if err != nil {
				return i.wrong("%w", err)
			}
			for _, w := range list {
				name, _, _ := strings.Cut(w, "=")
				has[name] = true
			}
		}
	}
	for name := range s.b.Args {
		if !has[name] {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "build argument %s: the Dockerfile has no ARG %s", shorten(name), shorten(name)),
				"use one of %s", strings.Join(slices.Sorted(maps.Keys(has)), ", "))
		}
	}
	return nil
}

// lookup returns the value of a variable for use in instructions.
func (s *state) lookup(name string) (string, bool) {
	if s.base == "" {
		value, ok := s.global[name]
		return value, ok
	}
	if n := s.envIndex(name); n >= 0 {
		_, value, _ := strings.Cut(s.Config.Env[n], "=")
		return value, true
	}
	value, ok := s.args[name]
	return value, ok
}

func (s *state) envIndex(name string) int {
	return slices.IndexFunc(s.Config.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

func (s *state) expand(i *instruction, text string) (string, error) {
	out, err := expand(text, s.variables())
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	return out, nil
}

// do executes one instruction.
func (s *state) do(ctx context.Context, i *instruction) error {
	switch i.name {
	case "FROM":
		return s.from(ctx, i)
	case "ARG":
		return s.arg(i)
	case "RUN":
		return s.run(ctx, i)
	case "COPY":
		return s.copy(ctx, i)
	case "ENV":
		return s.env(i)
	case "WORKDIR":
		return s.workDir(ctx, i)
	case "USER":
		user, err := s.expand(i, i.text)
		s.Config.User = user
		return err
	case "LABEL":
		return s.label(i)
	case "EXPOSE":
		return s.expose(i)
	case "ENTRYPOINT":
		s.Config.Entrypoint = i.argv()
		if !s.ownCmd {
			s.Config.Cmd = nil // CMD of the base belongs to the entry point of the base
		}
	case "CMD":
		s.Config.Cmd, s.ownCmd = i.argv(), true
	}
	return nil
}

func (s *state) from(ctx context.Context, i *instruction) error {
	list, err := words(i.text)
	if err != nil || len(list) != 1 && (len(list) != 3 || !strings.EqualFold(list[1], "AS")) {
		return sandbox.Errorf(sandbox.Invalid, "must have one image")
	}
	ref, err := s.expand(i, list[0])
	if err != nil {
		return err
	}
	if ref == "" {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is empty", list[0]), "set a value with --build-arg NAME=VALUE")
	}
	return s.From(ctx, ref)
}

func (s *state) arg(i *instruction) error {
	list, err := words(i.text)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	to := s.args
	if s.base == "" {
		to = s.global
	}
	for _, w := range list {
		name, text, hasDefault := strings.Cut(w, "=")
		value, given := s.b.Args[name]
		switch {
		case given:
		case hasDefault:
			if value, err = s.expand(i, text); err != nil {
				return err
			}
		default:
			if value, given = s.global[name]; !given {
				continue
			}
		}
		to[name] = value
	}
	return nil
}

func (s *state) env(i *instruction) error {
	list, err := pairs(i.text, s.variables())
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	for _, p := range list {
		text := p[0] + "=" + p[1]
		if n := s.envIndex(p[0]); n >= 0 {
			s.Config.Env[n] = text
		} else {
			s.Config.Env = append(s.Config.Env, text)
		}
	}
	return nil
}

func (s *state) label(i *instruction) error {
	list, err := pairs(i.text, s.variables())
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	if s.Config.Labels == nil {
		s.Config.Labels = map[string]string{}
	}
	for _, p := range list {
		s.Config.Labels[p[0]] = p[1]
	}
	return nil
}

func (s *state) expose(i *instruction) error {
	text, err := s.expand(i, i.text)
	if err != nil {
		return err
	}
	for p := range strings.FieldsSeq(text) {
		number, protocol, ok := strings.Cut(p, "/")
		if !ok {
			protocol = "tcp"
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || protocol != "tcp" && protocol != "udp" {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is not a port", shorten(p)), "write it like 8080 or 53/udp")
		}
		if p = number + "/" + protocol; !slices.Contains(s.Config.Ports, p) {
			s.Config.Ports = append(s.Config.Ports, p)
		}
	}
	return nil
}

// workingDir returns the directory in which programs and relative paths start.
func (s *state) workingDir() string { return path.Join("/", s.Config.WorkDir) }

// within returns an absolute path in the image. It ends with a slash if name
// does, or if name is the working directory itself.
func (s *state) within(name string) string {
	out := path.Clean(name)
	if !path.IsAbs(name) {
		out = path.Join(s.workingDir(), name)
	}
	if (name == "" || name == "." || strings.HasSuffix(name, "/")) && out != "/" {
		out += "/"
	}
	return out
}

func (s *state) workDir(ctx context.Context, i *instruction) error {
	dir, err := s.expand(i, i.text)
	if err != nil {
		return err
	}
	if dir == "" {
		return sandbox.Errorf(sandbox.Invalid, "must have a directory")
	}
	s.Config.WorkDir = path.Clean(s.within(dir))
	return s.MakeDir(ctx, s.Config.WorkDir)
}

// run runs a program in the sandbox.
func (s *state) run(ctx context.Context, i *instruction) error {
	env := maps.Clone(s.args)
	for _, e := range s.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	err := s.Run(ctx, i.argv(), s.Config.User, s.workingDir(), env)
	switch {
	case errors.Is(err, sandbox.ErrNoProgram) && i.list == nil:
		return sandbox.WithHint(err, `the image has no shell: write the command as a list, like RUN ["/hello"]`)
	case !errors.Is(err, sandbox.Conflict) || sandbox.HintOf(err) != "":
		return err
	case s.b.Network == sandbox.NetworkNone || s.b.Network == "":
		return sandbox.WithHint(err, "read its output; if the program needs a network, allow one, for example with --network internet")
	}
	return sandbox.WithHint(err, "read its output")
}

// copy copies files into the sandbox.
func (s *state) copy(ctx context.Context, i *instruction) error {
	names := i.list
	if names == nil {
		var err error
		if names, err = words(i.text); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%w", err)
		}
	}
	names = slices.Clone(names)
	for n := range names {
		var err error
		if names[n], err = s.expand(i, names[n]); err != nil {
			return err
		}
	}
	if len(names) < 2 {
		return sandbox.Errorf(sandbox.Invalid, "must have one or more sources and a destination")
	}
	mode := int64(-1)
	if text, ok := i.flags["chmod"]; ok {
		n, err := strconv.ParseInt(text, 8, 16)
		if err != nil || n < 0 || n > 0o7777 {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "--chmod=%s is not a file mode", shorten(text)), "write it like 0755")
		}
		mode = n
	}
	owner, err := s.expand(i, i.flags["chown"])
	if err != nil {
		return err
	}
	sources, err := s.dir.sources(names[:len(names)-1])
	if err != nil {
		return err
	}
	to := s.within(names[len(names)-1])
	if len(sources) > 1 && !strings.HasSuffix(to, "/") {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%d files cannot have the same destination %s", len(sources), shorten(to)), "add a slash at the end if the destination is a directory")
	}
	return s.Bench.copy(ctx, s.dir, sources, to, owner, mode)
}

// copyConfig returns a copy of a configuration that shares no data that a build
// changes.
func copyConfig(c sandbox.ImageConfig) sandbox.ImageConfig {
	c.Env, c.Ports, c.Labels = slices.Clone(c.Env), slices.Clone(c.Ports), maps.Clone(c.Labels)
	return c
}
