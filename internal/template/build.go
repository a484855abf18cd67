package template

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/imagebuild"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A Plan says what to build. One of FromImage and FromTemplate must be set.
type Plan struct {
	FromImage    string
	FromTemplate string
	Steps        []Step
	Start, Ready string // as in [Setup]
}

// A Step is one instruction, in the form of E2B's SDKs.
type Step struct {
	Type string // COPY, RUN, ENV, WORKDIR or USER
	Args []string
	// FilesHash names the uploaded archive of a COPY.
	FilesHash string
}

// The names of the steps around those of a plan, in E2B's form. The steps of a plan
// have numbers from 1.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

func (p *Plan) check() error {
	if (p.FromImage == "") == (p.FromTemplate == "") {
		return sandbox.Errorf(sandbox.Invalid, "one of fromImage and fromTemplate must be set")
	}
	if len(p.Steps) > maxSteps {
		return sandbox.Errorf(sandbox.Invalid, "steps: there are %d; the maximum is %d", len(p.Steps), maxSteps)
	}
	for name, command := range map[string]string{"startCmd": p.Start, "readyCmd": p.Ready} {
		if len(command) > maxCommand {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: the command has %d bytes; the maximum is %d", name, len(command), maxCommand),
				"copy a script into the template, and run that")
		}
		if strings.ContainsRune(command, 0) {
			return sandbox.Errorf(sandbox.Invalid, "%s: the command has a zero byte", name)
		}
	}
	for i, step := range p.Steps {
		if err := step.check(); err != nil {
			return sandbox.Wrap(err, "step", strconv.Itoa(i+1))
		}
	}
	return nil
}

// Begin queues a requested build, and returns at once. The error is of kind
// Conflict if the build began before.
func (s *Service) Begin(ctx context.Context, p sandbox.Principal, template, id string, plan Plan) error {
	if err := plan.check(); err != nil {
		return err
	}
	t, err := s.find(ctx, p, template)
	if err != nil {
		return err
	}
	b, err := s.opts.Store.TemplateBuild(ctx, t.ID, id)
	if err != nil {
		return err
	}
	if b.Status != store.BuildRequested {
		return errBegan
	}
	for _, step := range plan.Steps {
		if step.FilesHash != "" {
			if _, err := s.touch(p, step.FilesHash); err != nil {
				return explainWrite(err)
			}
		}
	}
	l, err := s.begin(b.ID)
	if err != nil {
		return err
	}
	err = s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error {
		if now.Status != store.BuildRequested {
			return errBegan
		}
		now.Status, now.Owner = store.BuildQueued, s.opts.Owner
		return nil
	})
	if err != nil {
		s.over(b.ID, l, nil)
		return err
	}
	// The build is this process's now, and so is its log.
	if err := explainWrite(l.log.open(s.logFile(b.ID))); err != nil {
		err = errors.Join(err, s.record(context.WithoutCancel(ctx), b, s.reason(t, b, err)))
		s.over(b.ID, l, nil)
		return err
	}
	go s.run(t, b, plan, l)
	return nil
}

var errBegan = sandbox.Errorf(sandbox.Conflict, "the build began before")

// begin registers a build of this process, which the caller passes to over.
func (s *Service) begin(id string) (*liveBuild, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work.Err() != nil {
		return nil, errEnding
	}
	if s.live[id] != nil {
		return nil, errBegan
	}
	l := &liveBuild{log: &buildLog{now: s.opts.Now}, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(s.work)
	s.live[id] = l
	s.group.Add(1)
	return l, nil
}

// over ends the registration of a build. err is an error of its log.
func (s *Service) over(id string, l *liveBuild, err error) {
	if err != nil {
		s.opts.Log.Warn("write log of build", "build", id, "error", err)
	}
	s.mu.Lock()
	delete(s.live, id)
	s.mu.Unlock()
	l.cancel(nil)
	close(l.done)
	s.group.Done()
}

// run waits for a turn, builds, and records the result.
func (s *Service) run(t Template, b Build, plan Plan, l *liveBuild) {
	err := s.inTurn(l.ctx, t, &b, plan, l.log)
	failure := ""
	if err != nil {
		b.Step = stepOf(err)
		failure = s.reason(t, b, err)
	}
	// The log is complete before a client can see that the build is over.
	logErr := l.log.close(failure)
	// The record is written even if the server ends.
	done := context.WithoutCancel(l.ctx)
	recordErr := s.record(done, b, failure)
	if err == nil && sandbox.KindOf(recordErr) == sandbox.Exhausted {
		// Builds at the same time took the tags that were left.
		b.Step = stepFinalize
		recordErr = errors.Join(s.record(done, b, s.reason(t, b, recordErr)), s.removeImage(done, b.Image))
	}
	switch {
	case recordErr == nil:
		recordErr = s.dropOld(done, t.ID)
	case sandbox.KindOf(recordErr) == sandbox.NotFound: // another process deleted the template
		recordErr = s.forget(done, b)
	}
	if recordErr != nil {
		s.opts.Log.Error("record end of build", "template", t.ID, "build", b.ID, "error", recordErr)
	}
	s.over(b.ID, l, logErr)
}

// record records the end of a build: a success, unless failure says why it failed.
func (s *Service) record(ctx context.Context, b Build, failure string) error {
	return s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error {
		now.Status, now.Sandbox, now.Setup, now.Image = store.BuildReady, "", b.Setup, b.Image
		if failure != "" {
			now.Status, now.Image, now.Reason, now.Step = store.BuildFailed, "", failure, b.Step
		}
		return nil
	})
}

// inTurn waits for a turn, and then builds.
func (s *Service) inTurn(ctx context.Context, t Template, b *Build, plan Plan, log *buildLog) error {
	wait, stop := context.WithTimeoutCause(ctx, queueTime, sandbox.Errorf(sandbox.Exhausted, "the build waited for %v for its turn", queueTime))
	hold, err := s.turns.Acquire(wait, fair.Request{Principal: t.Principal, Units: 1})
	if err != nil && wait.Err() != nil {
		err = context.Cause(wait)
	}
	stop()
	if err != nil {
		return err
	}
	defer hold.Release()
	err = s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error {
		now.Status, now.Image = store.BuildRunning, imageName(t.Name, b.ID)
		return nil
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the turn came with the end of the server
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.BuildTime,
		sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the build took longer than %v", s.opts.BuildTime), "have the operator raise templates.build_time"))
	defer cancel()
	if err = s.make(ctx, t, b, plan, log); err != nil && ctx.Err() != nil {
		err = &stepError{stepOf(err), context.Cause(ctx)}
	}
	return err
}

// A stepError is an error of one step.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func stepOf(err error) string {
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.step
	}
	return ""
}

// make makes the image of a build, and checks that a sandbox of it starts. If it
// fails, nothing is left of the build. It sets the build's Image and Setup.
func (s *Service) make(ctx context.Context, t Template, b *Build, plan Plan, log *buildLog) (err error) {
	setup, err := SetupOf(*b)
	if err != nil {
		return err
	}
	k := &work{
		s: s, log: log, principal: t.Principal, build: b.ID, setup: setup,
		Bench: imagebuild.Bench{
			Sandboxes: s.opts.Sandboxes, Images: pulls{s, t.Principal}, Principal: t.Principal,
			Name: imageName(t.Name, b.ID), By: "template " + t.Name,
			Limits: imagebuild.Limits(s.opts.Maximum), Network: s.opts.Network,
			TTL: s.opts.BuildTime + time.Minute, Timeout: s.opts.ProgramTime, Said: log,
			Made: func(ctx context.Context, id string) error {
				return s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error { now.Sandbox = id; return nil })
			},
		},
	}
	defer func() { err = errors.Join(err, k.Close(ctx), os.RemoveAll(filepath.Join(s.workDir(), b.ID))) }()
	step := stepBase
	defer func() {
		if err != nil {
			err = &stepError{step, err}
		}
	}()
	log.in(step)
	if err := s.roomForImages(ctx, t.Principal); err != nil {
		return err
	}
	if err := k.base(ctx, plan); err != nil {
		return err
	}
	for i, in := range plan.Steps {
		step = strconv.Itoa(i + 1)
		log.in(step)
		log.say(Info, "[%s] %s", step, in)
		if err := k.do(ctx, in); err != nil {
			return err
		}
	}
	step = stepFinalize
	log.in(step)
	if plan.Start != "" || plan.Ready != "" {
		k.setup.Start, k.setup.Ready = plan.Start, plan.Ready
	}
	if b.Setup, err = json.Marshal(k.setup); err != nil {
		return err
	}
	k.label(t.Name)
	i, err := k.Finish(ctx)
	if err != nil {
		return err
	}
	log.say(Info, "made the image %s", i.Name)
	if err := s.try(ctx, t, k.Name, k.setup, log); err != nil {
		return errors.Join(err, s.removeImage(context.WithoutCancel(ctx), k.Name))
	}
	b.Image = k.Name
	return nil
}

// pulls gives a build the images of its principal. The new image becomes the
// principal's before others can see it.
type pulls struct {
	s *Service
	p sandbox.Principal
}

func (i pulls) PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error) {
	return i.s.opts.Images.FetchImage(ctx, i.p, order.Ref, order.Progress)
}

func (i pulls) ExtendImage(ctx context.Context, order driver.ImageExtension) (sandbox.Image, error) {
	if err := i.s.roomForImages(ctx, i.p); err != nil {
		return sandbox.Image{}, err
	}
	o := i.s.opts
	pull, err := o.Store.BeginImagePull(ctx, o.Driver, order.Name, i.p)
	if err != nil {
		return sandbox.Image{}, err
	}
	made, err := o.Images.ExtendImage(ctx, order)
	if err = errors.Join(err, o.Store.EndImagePull(context.WithoutCancel(ctx), pull, made.ID, false)); err != nil {
		return made, err
	}
	// The size of the image is known only now.
	if err := i.s.roomForImages(ctx, i.p); err != nil {
		return sandbox.Image{}, errors.Join(err, i.s.removeImage(context.WithoutCancel(ctx), order.Name))
	}
	return made, nil
}

// roomForImages returns an error if the images of a principal's templates take more
// space than they may.
func (s *Service) roomForImages(ctx context.Context, p sandbox.Principal) error {
	most := s.opts.ImageSpace
	if most == 0 {
		return nil
	}
	names, err := s.opts.Store.TemplateImages(ctx, p)
	if err != nil {
		return err
	}
	all, err := s.opts.Images.Images(ctx)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, i := range all {
		if i.Name != "" && slices.Contains(names, i.Name) {
			size += i.SizeBytes
		}
	}
	if size > most {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the images of your templates have %d bytes; the maximum is %d", size, most),
			"delete templates or tags that you do not need, or have the operator raise templates.image_space")
	}
	return nil
}

// reason returns the text for a client about a failed build.
func (s *Service) reason(t Template, b Build, err error) string {
	if e, ok := errors.AsType[*stepError](err); ok {
		err = e.err
	}
	err = explainWrite(err)
	if sandbox.KindOf(err) == sandbox.Internal {
		s.opts.Log.Error("build template", "template", t.ID, "build", b.ID, "step", b.Step, "error", err)
		return "internal error; the server's log says how"
	}
	text := err.Error()
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return text
}
