package template

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// startLog is the file in a sandbox with the output of its start command.
const startLog = "/tmp/start-command.log"

// startFailed is the exit status of startScript if the start command failed.
const startFailed = 97

// startScript runs the start command $1 in the background, with its output in $3,
// and repeats the ready command $2 until it succeeds. It fails if the start command
// fails before. Both may be empty.
const startScript = `run() {
	if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; fi
	exec /bin/sh -c "$1"
}
pid=
if [ -n "$1" ]; then
	(run "$1") </dev/null >"$3" 2>&1 &
	pid=$!
fi
while :; do
	if [ -z "$2" ] || (run "$2") </dev/null >/dev/null 2>&1; then exit 0; fi
	if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
		wait "$pid" || { status=$?; tail -c 2000 "$3"; echo; echo "status $status"; exit 97; }
		pid=
	fi
	sleep 0.1 2>/dev/null || sleep 1
done`

// Start starts the start command of a setup in a sandbox, and returns when the
// ready command succeeds. The error is of kind Unavailable if it does not in
// [Options.ReadyTime], or if the start command fails. The caller then stops the
// sandbox.
func (s *Service) Start(ctx context.Context, p sandbox.Principal, id string, setup Setup) error {
	if setup.Start == "" && setup.Ready == "" {
		return nil
	}
	req := sandbox.RunRequest{
		SandboxID: id, Argv: []string{"/bin/sh", "-c", startScript, "sh", setup.Start, setup.Ready, startLog},
		Dir: setup.WorkDir, Timeout: s.opts.ReadyTime,
	}
	if setup.User != "" && setup.User != defaultUser {
		req.Root, req.As = true, setup.User
	}
	run, err := s.opts.Sandboxes.Start(ctx, p, req)
	if err != nil {
		return err
	}
	var said tail
	err = s.opts.Sandboxes.Follow(ctx, p, run.ID, func(_ sandbox.StreamName, data []byte) error {
		said.add(data)
		return nil
	})
	if err != nil {
		return err
	}
	if run, err = s.opts.Sandboxes.Wait(ctx, p, run.ID); err != nil {
		return err
	}
	switch v := run.Verdict; {
	case v.Code == sandbox.OK:
		return nil
	case run.ExitCode != nil && *run.ExitCode == startFailed:
		return sandbox.Errorf(sandbox.Unavailable, "the start command %s failed: %s", quote(setup.Start), strings.TrimSpace(string(said)))
	case v.Code == sandbox.Timeout:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the sandbox was not ready after %v: the ready command %s did not succeed", s.opts.ReadyTime, quote(setup.Ready)),
			"check both commands; the output of the start command is in %s", startLog)
	default:
		return sandbox.Errorf(sandbox.Unavailable, "start the template's commands: %s: %s", v.Code, v.Cause)
	}
}

// A tail is the end of a text.
type tail []byte

func (t *tail) add(data []byte) {
	const most = 4000
	*t = append(*t, data...)
	if n := len(*t) - most; n > 0 {
		*t = append((*t)[:0], (*t)[n:]...)
	}
}

// try starts a sandbox of a new image and stops it, so that a build whose commands
// do not work fails, and not each sandbox of it.
func (s *Service) try(ctx context.Context, t Template, image string, setup Setup, log *buildLog) (err error) {
	if setup.Start == "" && setup.Ready == "" {
		return nil
	}
	log.say(Info, "waiting for the start command to be ready")
	sb, err := s.opts.Sandboxes.Create(ctx, t.Principal, sandbox.CreateRequest{
		Name: "build", Image: image, Limits: s.Limits(setup), Network: s.opts.Network, TTL: s.opts.ReadyTime + time.Minute, Restless: true,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if stopErr := s.opts.Sandboxes.Stop(stop, t.Principal, sb.ID); sandbox.KindOf(stopErr) != sandbox.NotFound {
			err = errors.Join(err, stopErr)
		}
	}()
	return s.Start(ctx, t.Principal, sb.ID, setup)
}
