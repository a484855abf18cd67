package run

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/service"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// settleTime is how long a program of a service without a check must run for the
	// service to be ready: most programs that cannot start end sooner.
	settleTime = time.Second
	// readyEvery is the pause between two tries of a check, and tryTime bounds one.
	readyEvery = 100 * time.Millisecond
	tryTime    = 10 * time.Second
	// maxStartFile bounds, in bytes, the kept request to start a program.
	maxStartFile = 2 * guestapi.MaxUnaryRequest
	// keySize is the size of the key of a startFile, in bytes: AES-256.
	keySize = 32
)

// A keeper is the additional state of a run that is a service. The run's pump starts
// the program again; other goroutines end it, and find it ready.
type keeper struct {
	restart sandbox.RestartPolicy

	ending, settled, ready chan struct{} // closed by the functions below
	looks                  chan struct{} // has a value while a look at the ports is due
	end, settle, isReady   func()

	recording sync.Mutex // held while the state is changed and recorded; before Run.mu

	// For the pump. start is nil for a service of another process, until its file is
	// read. hangUp ends the stream of the last start.
	start   *startFile
	began   time.Time
	backoff service.Backoff
	hangUp  context.CancelFunc

	first *startFile // the first start, for checks; guarded by Run.mu
}

// A startFile has what it takes to start a program again. It may hold secrets, so it
// is kept in the sandbox and not on the host. It is sealed with a key of the record:
// programs of another user may neither read these secrets nor change the program.
type startFile struct {
	Request *guestapi.StartRequest `json:"request"`
	User    string                 `json:"user"`
}

func newKeeper(p sandbox.RestartPolicy) *keeper {
	k := &keeper{restart: p, ending: make(chan struct{}), settled: make(chan struct{}), ready: make(chan struct{}), looks: make(chan struct{}, 1), hangUp: func() {}}
	k.end = sync.OnceFunc(func() { close(k.ending) })
	k.settle = sync.OnceFunc(func() { close(k.settled) })
	k.isReady = sync.OnceFunc(func() { close(k.ready) })
	return k
}

// newService makes r a service.
func (r *Run) newService(req *sandbox.ServiceRequest) {
	r.svc = newKeeper(req.Restart)
	r.rec.Service = &sandbox.Service{Name: req.Name, State: sandbox.ServiceStarting, Restart: req.Restart, Wake: req.Wake}
	r.rec.Keeping.Check = req.Ready
	if r.keepsStart() {
		r.rec.Keeping.Key = make([]byte, keySize)
		rand.Read(r.rec.Keeping.Key) // never fails
	}
}

// reopenService makes r a service that another process began.
func (r *Run) reopenService() {
	r.svc = newKeeper(r.rec.Service.Restart)
	r.svc.began = r.set.opts.Now()
	if r.rec.Keeping.IsReady {
		r.svc.isReady()
	}
}

// logSize returns the bound of the run's log. A log that grows for days has the
// least one: head and tail stay, and the middle is dropped.
func (r *Run) logSize(isService bool) int64 {
	if isService {
		return min(r.set.opts.LogSize, runlog.MinSize)
	}
	return r.set.opts.LogSize
}

// ServiceName returns the name of the service that the run is, or "".
func (r *Run) ServiceName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec.Service == nil {
		return ""
	}
	return r.rec.Service.Name
}

// WaitReady waits until the run is ready, if it is a service, or has finished. If ctx
// ends first, it returns the run as it stands and ctx's error.
func (r *Run) WaitReady(ctx context.Context) (sandbox.Run, error) {
	if r.svc == nil {
		return r.Wait(ctx)
	}
	select {
	case <-r.svc.ready:
		return r.View()
	default:
	}
	select {
	case <-r.done:
		return r.View()
	case <-r.svc.ready:
		return r.View()
	case <-ctx.Done():
		run, _ := r.View()
		return run, ctx.Err()
	}
}

// Dozes reports whether the sandbox may rest although the run goes on: the run is a
// service that a request wakes, and its program runs. A start, a restart and a ready
// check keep the sandbox awake.
func (r *Run) Dozes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.rec.Service
	return s != nil && s.Wake == sandbox.WakeRequest && s.State == sandbox.ServiceRunning && r.rec.Keeping.IsReady && r.fate == verdict.FateNone
}

// endService makes a service not be started again.
func (r *Run) endService() {
	if r.svc != nil {
		r.svc.end()
	}
}

// have returns how much output of the present program the log has.
func (r *Run) have() guestapi.OutputCounts {
	xs := r.log.Extents()
	r.mu.Lock()
	defer r.mu.Unlock()
	return guestapi.OutputCounts{
		Stdout: max(0, xs[runlog.Stdout].Total-r.rec.Keeping.Stdout),
		Stderr: max(0, xs[runlog.Stderr].Total-r.rec.Keeping.Stderr),
	}
}

// setService changes the state of a service and records it. It copies the state
// first, because callers may hold the old one.
func (r *Run) setService(f func(*sandbox.Service)) {
	r.svc.recording.Lock()
	defer r.svc.recording.Unlock()
	r.mu.Lock()
	s := *r.rec.Service
	f(&s)
	r.rec.Service = &s
	rec := r.rec
	r.mu.Unlock()
	if r.Dozes() {
		r.in.Life.MayRest()
	}
	if err := r.set.opts.Records.SetService(context.WithoutCancel(r.ctx), rec); err != nil {
		r.set.opts.Log.Error("record state of service", "run", rec.ID, "error", err)
	}
}

// startProgram starts the program of a run. If the run is a service that may be
// started again, it keeps the request first.
func (r *Run) startProgram(start *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	if r.svc != nil {
		copied := *start
		r.svc.start, r.svc.began = &startFile{&copied, opts.User}, time.Now()
		r.mu.Lock()
		r.svc.first = r.svc.start
		r.mu.Unlock()
		if err := r.keepStart(); err != nil {
			return nil, err
		}
	}
	return r.in.Guest.Start(r.ctx, start, opts)
}

// startPath is the file of a service's startFile, in the sandbox.
func (r *Run) startPath() string { return "/tmp/.glovebox-env/" + r.rec.ID + ".json" }

// keepsStart reports whether a later process needs the startFile.
func (r *Run) keepsStart() bool {
	return r.svc != nil && r.set.opts.Detached && r.svc.restart != sandbox.RestartNever
}

func (r *Run) keepStart() error {
	if !r.keepsStart() {
		return nil
	}
	text, err := json.Marshal(r.svc.start)
	if err != nil {
		return err
	}
	seal, err := r.seal()
	if err != nil {
		return err
	}
	sealed := seal.Seal(nil, nil, text, []byte(r.rec.ID))
	_, err = r.in.Guest.Write(r.ctx, r.startPath(), bytes.NewReader(sealed), guestapi.WriteOptions{User: sandbox.Root})
	return sandbox.Wrap(err, "keep start of service", "")
}

// seal returns the cipher of the startFile.
func (r *Run) seal() (cipher.AEAD, error) {
	block, err := aes.NewCipher(r.rec.Keeping.Key)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "key of the start of a service: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// loadStart reads the startFile of a service of another process.
func (r *Run) loadStart() error {
	if r.svc.start != nil {
		return nil
	}
	seal, err := r.seal()
	if err != nil {
		return err
	}
	f, _, err := r.in.Guest.Read(r.ctx, r.startPath(), 0, maxStartFile, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		return sandbox.Wrap(err, "read start of service", "")
	}
	defer f.Close()
	sealed, err := io.ReadAll(io.LimitReader(f, maxStartFile))
	if err != nil {
		return sandbox.Wrap(err, "read start of service", "")
	}
	text, err := seal.Open(nil, nil, sealed, []byte(r.rec.ID))
	var s startFile
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || s.Request == nil {
		return sandbox.Errorf(sandbox.Unavailable, "read start of service: the file has changed")
	}
	r.svc.start = &s
	r.mu.Lock()
	r.svc.first = &s
	r.mu.Unlock()
	return nil
}

// listenSettling is listen for a program of a service. The service settles when the
// program has run for settleTime.
func (r *Run) listenSettling(stream guestlink.Events) *guestapi.End {
	t := time.AfterFunc(settleTime, r.svc.settle)
	defer t.Stop()
	return r.listen(stream)
}

// keepRunning follows the program of a service, starts it again after its ends, as its
// policy says, and returns the last end. It returns nil if this process lets the run
// go.
func (r *Run) keepRunning(stream guestlink.Events) *guestapi.End {
	defer func() { r.svc.hangUp() }()
	end := r.listenSettling(stream)
	for {
		failed := end == nil || end.Status != guestapi.EndOK
		if !r.mayGoOn() || !service.Again(r.svc.restart, failed) {
			return end
		}
		wait := r.svc.backoff.Wait(time.Since(r.svc.began))
		r.setService(func(s *sandbox.Service) {
			s.State, s.LastExit, s.Ports = sandbox.ServiceRestarting, nil, nil
			if end != nil {
				s.LastExit = end.ExitCode
			}
		})
		r.mark("the service %s, and starts again in %v", endText(end), wait)
		select {
		case <-r.ctx.Done():
			return nil
		case <-r.svc.ending:
			return end
		case <-time.After(wait):
		}
		if !r.mayGoOn() {
			return end
		}
		stream, err := r.startAgain()
		if err != nil {
			r.mark("the service could not be started: %v", err)
			end = nil
			continue
		}
		end = r.listenSettling(stream)
	}
}

// mayGoOn reports whether nothing ends the service, or leaves it to another process.
func (r *Run) mayGoOn() bool {
	r.mu.Lock()
	on := r.fate == verdict.FateNone && r.state == going
	r.mu.Unlock()
	return on && r.ctx.Err() == nil && !r.in.stops() && !r.stopRequested()
}

// stopRequested reports whether the owner asked for the end of the run at another
// process, which killed the program.
func (r *Run) stopRequested() bool {
	rec, err := r.set.opts.Records.Run(r.ctx, r.rec.ID)
	return err == nil && rec.StopRequested
}

// mark writes a line of the server into the log of a service.
func (r *Run) mark(format string, args ...any) {
	r.take(&guestapi.DataEvent{Stderr: []byte("[" + fmt.Sprintf(format, args...) + "]\n")})
}

// endText says how a program ended.
func endText(end *guestapi.End) string {
	switch {
	case end == nil:
		return "was lost"
	case end.Status == guestapi.EndDied:
		return fmt.Sprintf("was killed by signal %d", end.Detail.Signal)
	case end.ExitCode != nil:
		return fmt.Sprintf("exited with status %d", *end.ExitCode)
	default:
		return "ended"
	}
}

// startAgain starts the program of a service once more.
func (r *Run) startAgain() (guestlink.Events, error) {
	r.svc.began = time.Now()
	xs := r.log.Extents()
	r.setService(func(s *sandbox.Service) {
		s.Restarts++
		s.State = sandbox.ServiceStarting
		if r.rec.Keeping.IsReady {
			s.State = sandbox.ServiceRunning
		}
		r.rec.Keeping.Stdout, r.rec.Keeping.Stderr = xs[runlog.Stdout].Total, xs[runlog.Stderr].Total
	})
	if err := r.loadStart(); err != nil {
		return nil, err
	}
	r.svc.hangUp()
	ctx, hangUp := context.WithCancel(r.ctx)
	r.svc.hangUp = hangUp
	late := time.AfterFunc(StartTimeout, hangUp) // the stream itself has no limit
	stream, err := r.in.Guest.Start(ctx, r.svc.start.Request, guestapi.StartOptions{User: r.svc.start.User, Timeout: sandbox.Forever})
	if !late.Stop() && err == nil {
		stream.Close()
		err = errStartTimeout
	}
	if err != nil {
		return nil, err
	}
	r.svc.lookSoon()
	if !r.mayGoOn() && r.ctx.Err() == nil {
		// The signal that ends the run may have come before the program.
		if err := r.in.Guest.Signal(r.ctx, r.selector(), guestapi.SIGKILL); err != nil {
			r.set.opts.Log.Warn("end service that just started", "run", r.rec.ID, "error", err)
		}
	}
	return stream, nil
}

// watchReady finds out, in the background, when a service is ready.
func (r *Run) watchReady() {
	if r.svc != nil && !r.rec.Keeping.IsReady {
		r.set.opts.Work(r.awaitReady)
	}
}

// awaitReady waits until a service is ready, and ends it if that takes too long.
func (r *Run) awaitReady() {
	check := sandbox.ReadyCheck{Timeout: service.ReadyTime}
	if c := r.rec.Keeping.Check; c != nil { // never changed
		check = *c
	}
	ctx, cancel := context.WithTimeout(r.ctx, check.Timeout)
	defer cancel()
	err := r.tryReady(ctx, check)
	if r.ctx.Err() != nil {
		return // it has ended, or is left to another process
	}
	if err != nil {
		r.Kill(verdict.FateUnready, err)
		return
	}
	ports, found := r.findPorts()
	if !found && check.Port != 0 {
		ports, found = []int{check.Port}, true
	}
	r.setService(func(s *sandbox.Service) {
		if s.State == sandbox.ServiceStarting {
			s.State = sandbox.ServiceRunning
		}
		if found {
			s.Ports = ports
		}
		r.rec.Keeping.IsReady = true
	})
	r.svc.isReady()
	r.svc.lookSoon()
}

// errReady ends the search for a line that was found.
var errReady = errors.New("the service is ready")

// tryReady waits for a check to succeed. The error says what did not happen before
// ctx ended.
func (r *Run) tryReady(ctx context.Context, c sandbox.ReadyCheck) error {
	switch {
	case c.Output != "":
		err := r.findLine(ctx, c.Output)
		if errors.Is(err, errReady) {
			return nil
		}
		<-ctx.Done() // the log of a service ends with its run
		return fmt.Errorf("no line of its output matched %.200q within %v", c.Output, c.Timeout)
	case c.Port != 0:
		return r.poll(ctx, func(ctx context.Context) error {
			conn, err := r.in.Guest.DialPort(ctx, c.Port)
			if err == nil {
				conn.Close()
			}
			return err
		}, fmt.Errorf("nothing listened on port %d within %v", c.Port, c.Timeout))
	case c.Command != "":
		return r.poll(ctx, func(ctx context.Context) error { return r.try(ctx, c.Command) },
			fmt.Errorf("the command for ready did not succeed within %v", c.Timeout))
	default:
		select {
		case <-r.svc.settled:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("its program never ran for %v within %v", settleTime, c.Timeout)
		}
	}
}

// findLine follows the output until a line matches. It then returns errReady.
func (r *Run) findLine(ctx context.Context, pattern string) error {
	streams := map[sandbox.StreamName]*service.Lines{}
	for _, name := range []sandbox.StreamName{sandbox.Stdout, sandbox.Stderr} {
		lines, err := service.NewLines(pattern)
		if err != nil {
			return err
		}
		streams[name] = lines
	}
	return r.log.Follow(ctx, func(stream sandbox.StreamName, data []byte) error {
		if streams[stream].Match(data) {
			return errReady
		}
		return nil
	})
}

// poll calls try until it succeeds. It returns late if ctx ends first.
func (r *Run) poll(ctx context.Context, try func(context.Context) error, late error) error {
	for {
		one, cancel := context.WithTimeout(ctx, tryTime)
		err := try(one)
		cancel()
		if err == nil {
			return nil
		}
		if errors.Is(err, sandbox.Unsupported) {
			return err
		}
		select {
		case <-ctx.Done():
			return late
		case <-time.After(readyEvery):
		}
	}
}

// try runs a shell command as the service's user, in its directory and environment.
func (r *Run) try(ctx context.Context, command string) error {
	r.mu.Lock()
	start := r.svc.first
	r.mu.Unlock()
	no := false
	req := &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}, Stdin: &no}
	opts := guestapi.StartOptions{User: sandbox.User, Timeout: tryTime}
	if start != nil {
		req.Process.Envs, req.Process.Cwd, opts.User = start.Request.Process.Envs, start.Request.Process.Cwd, start.User
	}
	stream, err := r.in.Guest.Start(ctx, req, opts)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		switch ev, err := stream.Next(); {
		case err != nil:
			return err
		case ev.End != nil && ev.End.Status == guestapi.EndOK:
			return nil
		case ev.End != nil:
			return errors.New(endText(ev.End))
		}
	}
}
