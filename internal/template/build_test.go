package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func TestBuild(t *testing.T) {
	s, w := newTest(t, nil)
	upload(t, s, archive(t, "src/a", "a", "src/deep/b", "b", "src/link", "->deep/b", "c.txt", "c"))
	w.does["true"] = func(_ context.Context, said io.Writer) sandbox.Verdict {
		fmt.Fprintf(said, "one\ntwo")
		return sandbox.Verdict{Code: sandbox.OK}
	}
	tm, b := build(t, s, "App:v1", Plan{FromImage: "base:1", Start: "serve", Ready: "check", Steps: []Step{
		{Type: "ENV", Args: []string{"B", "secret $A${A}$NONE", "PATH", "/x:$PATH"}},
		{Type: "COPY", Args: []string{"src", "dest", "", ""}, FilesHash: hash},
		{Type: "COPY", Args: []string{"c.txt", "/etc/c", "root", "0600"}, FilesHash: hash},
		{Type: "COPY", Args: []string{"*.txt", "/all/"}, FilesHash: hash},
		{Type: "WORKDIR", Args: []string{"work"}},
		{Type: "RUN", Args: []string{"true"}},
		{Type: "USER", Args: []string{"other:group"}},
		{Type: "RUN", Args: []string{"false", "root"}},
	}})
	if b.Status != Ready || b.Reason != "" || b.Sandbox != "" || b.Finished.IsZero() {
		t.Fatalf("%+v", b)
	}
	var ran []string
	for _, r := range w.ran {
		ran = append(ran, fmt.Sprintf("%s as %q in %s: %q", r.SandboxID, r.As, r.Dir, r.Argv[len(r.Argv)-1]))
	}
	want := []string{
		`alice-1 as "" in /: "` + strings.ReplaceAll(strings.ReplaceAll(baseScript, "\n", `\n`), "\t", `\t`) + `"`,
		`alice-1 as "" in /: "user"`, `alice-1 as "user" in /home/user/work: "true"`, `alice-1 as "" in /: "other"`,
		`alice-1 as "root" in /home/user/work: "false"`, `alice-8 as "other:group" in /home/user/work: "/tmp/start-command.log"`,
	}
	if d := cmp.Diff(want, ran); d != "" {
		t.Errorf("programs: -want +got\n%s", d)
	}
	if got := w.ran[2].Env; got["B"] != "secret of the baseof the base" || got["PATH"] != "/x:"+defaultPath {
		t.Errorf("environment of a program: %v", got)
	}
	unpacked := []string{
		"/home/user/dest false user: a 640, deep/ 755, deep/b 640, link 777", "/etc/c true root: c.txt 600", "/all false user: c.txt 640, src/ 755, src/a 640, src/deep/ 755, src/deep/b 640, src/link 777",
	}
	if d := cmp.Diff(unpacked, w.unpacked); d != "" {
		t.Errorf("files: -want +got\n%s", d)
	}
	made := w.images[b.Image]
	wantConfig := sandbox.ImageConfig{
		Env: []string{"A=of the base", "B=secret of the baseof the base", "PATH=/x:" + defaultPath}, WorkDir: "/home/user/work",
		Labels: map[string]string{"glovebox.template": "app build " + b.ID},
	}
	if d := cmp.Diff(wantConfig, made.Config); d != "" {
		t.Errorf("configuration: -want +got\n%s", d)
	}
	records, err := s.opts.Store.ImageRecords(t.Context(), "world")
	if err != nil || !slices.Equal(records.Principals[made.ID], []sandbox.Principal{alice}) || len(records.Pulls) > 0 {
		t.Errorf("the image's owner: %+v, %v", records, err)
	}
	if len(w.live) > 0 || len(left(t, s.workDir())) > 0 {
		t.Errorf("left: %v, %v", w.live, left(t, s.workDir()))
	}

	entries, err := s.Logs(t.Context(), alice, tm.ID, b.ID, Info)
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, e := range entries {
		log = append(log, fmt.Sprintf("%s %s: %s", e.Level, e.Step, e.Message))
	}
	text := strings.Join(log, "\n")
	if !strings.Contains(text, "info 6: one\ninfo 6: two\ninfo 7: [7] USER other:group") || strings.Contains(text, "secret") {
		t.Errorf("the log is\n%s", text)
	}

	// Names mean the build, for its principal.
	_, got, err := s.Resolve(t.Context(), alice, "app:v1")
	if err != nil || got.ID != b.ID {
		t.Errorf("%+v, %v", got, err)
	}
	setup, err := SetupOf(got)
	if d := cmp.Diff(Setup{CPUs: 8, MemoryMB: 4096, User: "other:group", WorkDir: "/home/user/work", Start: "serve", Ready: "check"}, setup); err != nil || d != "" {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
	if l := s.Limits(setup); l.CPUs != 2 || l.MemoryBytes != 1<<30 {
		t.Errorf("limits beyond the operator's: %+v", l)
	}
	for _, name := range []string{"app", "app:v2", "none"} {
		if _, _, err := s.Resolve(t.Context(), alice, name); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.Resolve(t.Context(), bob, "app:v1"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another principal: %v", err)
	}

	// A new build of the tag replaces the image, and a template builds on another.
	_, next := build(t, s, "app:v1", Plan{FromTemplate: "app:v1"})
	if made := w.made(); next.Status != Ready || !slices.Equal(made, []string{next.Image}) {
		t.Errorf("%+v; images %v", next, made)
	}
	if setup, err = SetupOf(next); err != nil || setup.User != "other:group" || setup.Start != "serve" {
		t.Errorf("a template on another: %+v, %v", setup, err)
	}
	if err := s.Delete(t.Context(), alice, "app"); err != nil {
		t.Fatal(err)
	}
	if got := append(w.made(), left(t, s.logsDir())...); len(got) > 0 {
		t.Errorf("left of a deleted template: %v", got)
	}
}

// TestBuildFails ends builds in all ways, of which only the record and the log are
// left.
func TestBuildFails(t *testing.T) {
	run := func(text string) Plan {
		return Plan{FromImage: "base:1", Steps: []Step{{Type: "RUN", Args: []string{text}}}}
	}
	copying := Plan{FromImage: "base:1", Steps: []Step{{Type: "COPY", Args: []string{".", "/"}, FilesHash: hash}}}
	doubling := Plan{FromImage: "base:1", Steps: []Step{{Type: "ENV", Args: []string{"X", strings.Repeat("x", 1000)}}}}
	for range 30 {
		doubling.Steps = append(doubling.Steps, Step{Type: "ENV", Args: []string{"X", "$X$X"}})
	}
	for name, c := range map[string]struct {
		plan   Plan
		files  []byte
		spoil  func(*world)
		step   string
		reason string
	}{
		"unknown image":    {Plan{FromImage: "none:1"}, nil, nil, "base", `image: "none:1" is not here`},
		"unknown template": {Plan{FromTemplate: "none"}, nil, nil, "base", `image: "none" is not here`},
		"E2B's template":   {Plan{FromTemplate: "base"}, nil, nil, "base", `image: "e2bdev/base" is not here`},
		"the host":         {Plan{FromImage: "host"}, nil, nil, "base", "no base"},
		"program": {run("x"), nil, func(w *world) {
			w.does["x"] = func(context.Context, io.Writer) sandbox.Verdict {
				return sandbox.Verdict{Code: sandbox.TooManyProcesses, Cause: "the limit of 64 processes"}
			}
		}, "1", "too_many_processes: the limit of 64 processes; read the log"},
		"full disk": {run("true"), nil, func(w *world) {
			w.extend = &os.PathError{Op: "write", Path: "/secret/state", Err: syscall.ENOSPC}
		}, "finalize", "the server's disk is full: no space left on device"},
		"own failure": {run("true"), nil, func(w *world) { w.extend = errors.New("/secret/state is broken") }, "finalize", "internal error"},
		"start command": {Plan{FromImage: "base:1", Start: "s", Ready: "r"}, nil, func(w *world) {
			w.does["start s"] = func(_ context.Context, said io.Writer) sandbox.Verdict {
				fmt.Fprint(said, "no port\n\nstatus 3\n")
				return sandbox.Verdict{Code: sandbox.Failed, Cause: "exit status 97"}
			}
		}, "finalize", "the start command \"s\" failed: no port\n\nstatus 3"},
		"ready command": {Plan{FromImage: "base:1", Start: "s", Ready: "r"}, nil, func(w *world) {
			w.does["start s"] = func(context.Context, io.Writer) sandbox.Verdict { return sandbox.Verdict{Code: sandbox.Timeout} }
		}, "finalize", `the sandbox was not ready after 1m0s: the ready command "r" did not succeed`},
		"no files":          {copying, nil, nil, "1", "are not here; upload them"},
		"link outside":      {copying, archive(t, "d/l", "->../../x"), nil, "1", `the link "d/l" leads out`},
		"absolute link":     {copying, archive(t, "l", "->/etc/passwd"), nil, "1", `the link "l" leads out`},
		"name outside":      {copying, archive(t, "../x", "x"), nil, "1", "unpack the files: "},
		"absolute name":     {copying, archive(t, "/etc/x", "x"), nil, "1", "unpack the files: "},
		"below a link":      {copying, archive(t, "l", "->/tmp", "l/x", "x"), nil, "1", "unpack the files: "},
		"no archive":        {copying, []byte("text"), nil, "1", "unpack the files: "},
		"broken archive":    {copying, archive(t, "a", strings.Repeat("a", 1000))[:40], nil, "1", "unpack the files: "},
		"unpacks to more":   {copying, archive(t, "a", strings.Repeat("\x00", 5<<20)), nil, "1", "more than 4194304 bytes"},
		"gzip bomb":         {copying, archive(t, "a", strings.Repeat("\x00", 3<<20)), nil, "1", "more than 200 times larger than the archive"},
		"source not there":  {Plan{FromImage: "base:1", Steps: []Step{{Type: "COPY", Args: []string{"b", "/"}, FilesHash: hash}}}, archive(t, "a", "a"), nil, "1", `b is not in`},
		"source outside":    {Plan{FromImage: "base:1", Steps: []Step{{Type: "COPY", Args: []string{"../b", "/"}, FilesHash: hash}}}, archive(t, "a", "a"), nil, "1", "leads out"},
		"variables explode": {doubling, nil, nil, "10", "the variables have more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newTest(t, nil)
			if c.spoil != nil {
				c.spoil(w)
			}
			if c.files != nil {
				upload(t, s, c.files)
			}
			_, b := build(t, s, "app", c.plan)
			if b.Status != Failed || b.Step != c.step || !strings.Contains(b.Reason, c.reason) || strings.Contains(b.Reason, "/secret") {
				t.Errorf("%s in step %s: %q; want step %s: %q", b.Status, b.Step, b.Reason, c.step, c.reason)
			}
			if len(w.live) > 0 || len(w.made()) > 0 || len(left(t, s.workDir())) > 0 || b.Image != "" {
				t.Errorf("left: sandboxes %v, images %v, files %v", w.live, w.made(), left(t, s.workDir()))
			}
			entries, err := s.Logs(t.Context(), alice, "app", b.ID, Error)
			if err != nil || len(entries) != 1 || entries[0].Message != b.Reason {
				t.Errorf("the errors in the log: %v, %v", entries, err)
			}
			if _, _, err := s.Resolve(t.Context(), alice, "app"); !errors.Is(err, sandbox.NotFound) {
				t.Errorf("a template without a ready build: %v", err)
			}
		})
	}
}

// TestBeginRefuses refuses plans before anything is done.
func TestBeginRefuses(t *testing.T) {
	s, _ := newTest(t, nil)
	tm, b, err := s.Request(t.Context(), alice, Order{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	step := func(kind string, args ...string) Plan {
		return Plan{FromImage: "base:1", Steps: []Step{{Type: kind, Args: args}}}
	}
	for name, plan := range map[string]Plan{
		"no base": {}, "two bases": {FromImage: "a", FromTemplate: "b"}, "no command": step("RUN"), "odd": step("ENV", "A"),
		"name": step("ENV", "A=B", "c"), "copy": step("COPY", "a"), "hash": step("COPY", "a", "b"), "mode": {FromImage: "a", Steps: []Step{
			{Type: "COPY", Args: []string{"a", "b", "", "99"}, FilesHash: hash}}}, "kind": step("VOLUME", "/x"), "zero": step("RUN", "a\x00b"),
		"start": {FromImage: "a", Start: strings.Repeat("x", maxCommand+1)}, "ready": {FromImage: "a", Ready: strings.Repeat("x", maxCommand+1)},
		"zero in start": {FromImage: "a", Start: "a\x00b"}, "user": step("USER", strings.Repeat("x", maxUser+1)), "directory": step("WORKDIR", strings.Repeat("x", maxPath+1)),
		"steps": {FromImage: "a", Steps: make([]Step, maxSteps+1)},
	} {
		if err := s.Begin(t.Context(), alice, tm.ID, b.ID, plan); !errors.Is(err, sandbox.Invalid) && !errors.Is(err, sandbox.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Begin(t.Context(), bob, tm.ID, b.ID, step("RUN", "x")); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another principal: %v", err)
	}
	if err := s.Begin(t.Context(), alice, tm.ID, "none", step("RUN", "x")); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("no build: %v", err)
	}
	if err := s.Begin(t.Context(), alice, tm.ID, b.ID, step("RUN", "x")); err != nil {
		t.Fatal(err)
	}
	wait(t, s, tm, b)
	if err := s.Begin(t.Context(), alice, tm.ID, b.ID, step("RUN", "x")); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a second time: %v", err)
	}
	if entries, err := s.Logs(t.Context(), alice, tm.ID, b.ID, ""); err != nil || len(entries) == 0 {
		t.Errorf("the log after a second time: %v, %v", entries, err)
	}
}

// TestImageSpace bounds the images of a principal's templates, and of no other's.
func TestImageSpace(t *testing.T) {
	s, w := newTest(t, func(o *Options) { o.ImageSpace = 100 })
	w.size = 60
	plan := Plan{FromImage: "base:1"}
	_, first := build(t, s, "first", plan)
	tm, second := build(t, s, "second", plan)
	if first.Status != Ready || second.Status != Failed || !strings.Contains(second.Reason, "the images of your templates have 120 bytes; the maximum is 100") {
		t.Errorf("%+v, %+v", first, second)
	}
	if d := cmp.Diff([]string{first.Image}, w.made()); d != "" {
		t.Errorf("images: -want +got\n%s", d)
	}
	bobs, b, err := s.Request(t.Context(), bob, Order{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context(), bob, bobs.ID, b.ID, plan); err != nil {
		t.Fatal(err)
	}
	s.group.Wait()
	if b, err = s.Build(t.Context(), bob, bobs.ID, b.ID); err != nil || b.Status != Ready {
		t.Errorf("another principal: %+v, %v", b, err)
	}
	// The images that a principal removes make room.
	if err := s.Delete(t.Context(), alice, "first"); err != nil {
		t.Fatal(err)
	}
	if tm, second = build(t, s, "second", plan); second.Status != Ready {
		t.Errorf("%s: %+v", tm.Name, second)
	}
}

// TestTagsOfBuilds bounds the tags that builds at the same time give a template.
func TestTagsOfBuilds(t *testing.T) {
	s, w := newTest(t, nil)
	var builds [2]Build
	for i := range builds {
		var tags []string
		for n := range maxTags {
			tags = append(tags, fmt.Sprintf("v%d-%d", i, n))
		}
		var err error
		if _, builds[i], err = s.Request(t.Context(), alice, Order{Name: "app", Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range builds {
		if err := s.Begin(t.Context(), alice, "app", b.ID, Plan{FromImage: "base:1"}); err != nil {
			t.Fatal(err)
		}
		s.group.Wait()
		var err error
		if builds[i], err = s.Build(t.Context(), alice, "app", b.ID); err != nil {
			t.Fatal(err)
		}
	}
	if builds[0].Status != Ready || builds[1].Status != Failed || !strings.Contains(builds[1].Reason, "would have 100 tags; the maximum is 50") {
		t.Errorf("%+v", builds)
	}
	if tags, err := s.Tags(t.Context(), alice, "app"); err != nil || len(tags) != maxTags || !slices.Equal(w.made(), []string{builds[0].Image}) {
		t.Errorf("%d tags, %v; images %v", len(tags), err, w.made())
	}
}

// TestBusyImages leaves images that cannot be removed to the next sweep.
func TestBusyImages(t *testing.T) {
	s, w := newTest(t, nil)
	plan := Plan{FromImage: "base:1"}
	build(t, s, "app", plan)
	w.busy = true
	_, b := build(t, s, "app", plan)
	if err := s.Sweep(t.Context()); !errors.Is(err, sandbox.Conflict) || strings.Contains(err.Error(), "deadline") || len(w.made()) != 2 {
		t.Errorf("%v; images %v", err, w.made())
	}
	w.busy = false
	if err := s.Sweep(t.Context()); err != nil || !slices.Equal(w.made(), []string{b.Image}) {
		t.Errorf("%v; images %v", err, w.made())
	}
}

// TestLogsOfPrincipal removes the oldest logs of a principal, and of no other.
func TestLogsOfPrincipal(t *testing.T) {
	s, _ := newTest(t, nil)
	plan := Plan{FromImage: "base:1"}
	tm, old := build(t, s, "app", plan)
	_, young := build(t, s, "app", plan)
	bobs, b, err := s.Request(t.Context(), bob, Order{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context(), bob, bobs.ID, b.ID, plan); err != nil {
		t.Fatal(err)
	}
	s.group.Wait()
	for _, id := range []string{old.ID, young.ID, b.ID} {
		if err := os.Truncate(s.logFile(id), maxLogs*2/3); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{young.ID + ".jsonl", b.ID + ".jsonl"}
	slices.Sort(want)
	if d := cmp.Diff(want, left(t, s.logsDir())); d != "" {
		t.Errorf("logs of %s: -want +got\n%s", tm.Name, d)
	}
	if entries, err := s.Logs(t.Context(), alice, tm.ID, old.ID, ""); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// blocked is a program that runs until its build ends, and that says when it runs.
func blocked(w *world) (running chan struct{}) {
	running = make(chan struct{})
	w.does["block"] = func(ctx context.Context, _ io.Writer) sandbox.Verdict {
		close(running)
		<-ctx.Done()
		return sandbox.Verdict{Code: sandbox.Cancelled}
	}
	return running
}

var blocking = Plan{FromImage: "base:1", Steps: []Step{{Type: "RUN", Args: []string{"block"}}}}

// TestBuildEnds ends builds from outside: by their time, by the end of the server,
// and with their template.
func TestBuildEnds(t *testing.T) {
	t.Run("time", func(t *testing.T) {
		s, w := newTest(t, func(o *Options) { o.BuildTime = time.Millisecond })
		blocked(w)
		_, b := build(t, s, "app", blocking)
		if b.Status != Failed || !strings.Contains(b.Reason, "the build took longer than 1ms") || len(w.live) > 0 {
			t.Errorf("%+v; left %v", b, w.live)
		}
	})
	t.Run("server", func(t *testing.T) {
		s, w := newTest(t, nil)
		running := blocked(w)
		tm, b := begin(t, s, "app", blocking)
		<-running
		queued, second := begin(t, s, "second", blocking)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Run(ctx)
		for _, b := range []Build{wait(t, s, tm, b), wait(t, s, queued, second)} {
			if b.Status != Failed || b.Reason != "the server ended during the build; build it again" || len(w.live) > 0 {
				t.Errorf("%+v; left %v", b, w.live)
			}
		}
		third, b, err := s.Request(t.Context(), alice, Order{Name: "third"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Begin(t.Context(), alice, third.ID, b.ID, blocking); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("after the end: %v", err)
		}
	})
	t.Run("template", func(t *testing.T) {
		s, w := newTest(t, nil)
		running := blocked(w)
		begin(t, s, "app", blocking)
		<-running
		if err := s.Delete(t.Context(), bob, "app"); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("another principal: %v", err)
		}
		if err := s.Delete(t.Context(), alice, "app"); err != nil {
			t.Fatal(err)
		}
		if len(w.live) > 0 || len(left(t, s.logsDir())) > 0 {
			t.Errorf("left: %v, %v", w.live, left(t, s.logsDir()))
		}
	})
}

// TestDeadServer sweeps after a server that was killed during builds.
func TestDeadServer(t *testing.T) {
	ctx := t.Context()
	s, w := newTest(t, nil)
	alive, err := s.opts.Store.RegisterOwner(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Release(context.WithoutCancel(ctx))
	builds := map[string]Build{}
	for name, owner := range map[string]string{"dead": "gone", "queued": "gone", "alive": alive.ID()} {
		tm, b, err := s.Request(ctx, alice, Order{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		sb, err := w.Create(ctx, alice, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error {
			now.Status, now.Owner, now.Sandbox, now.Image = store.BuildRunning, owner, sb.ID, imageName(name, b.ID)
			if name == "queued" {
				now.Status, now.Sandbox, now.Image = store.BuildQueued, "", ""
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.images[imageName(name, b.ID)] = sandbox.Image{Name: imageName(name, b.ID)}
		if err := os.MkdirAll(filepath.Join(s.workDir(), b.ID, "files"), 0o700); err != nil {
			t.Fatal(err)
		}
		b.Template, b.Sandbox = tm.ID, sb.ID
		builds[name] = b
	}
	// This image is of a template that was deleted while its server was dead. The
	// other is the operator's.
	w.images["template.glovebox/old:"+newBuildID()] = sandbox.Image{Name: "template.glovebox/old:" + newBuildID()}
	for name := range w.images {
		w.images[name] = sandbox.Image{Name: name, ID: name}
	}
	w.images["template.glovebox/mine:1"] = sandbox.Image{Name: "template.glovebox/mine:1"}

	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]store.BuildStatus{"dead": Failed, "queued": Failed, "alive": Running} {
		b, err := s.Build(ctx, alice, builds[name].Template, builds[name].ID)
		if err != nil || b.Status != want || want == Failed && !strings.Contains(b.Reason, "the server ended during the build") {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
		_, lives := w.live[builds[name].Sandbox]
		if lives != (want == Running || name == "queued") {
			t.Errorf("%s: its sandbox lives: %t", name, lives)
		}
	}
	if d := cmp.Diff([]string{imageName("alive", builds["alive"].ID), "template.glovebox/mine:1"}, w.made()); d != "" {
		t.Errorf("images: -want +got\n%s", d)
	}
	if d := cmp.Diff([]string{builds["alive"].ID, filepath.Join(builds["alive"].ID, "files")}, left(t, s.workDir())); d != "" {
		t.Errorf("files: -want +got\n%s", d)
	}
}
