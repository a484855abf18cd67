package process

import (
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// launch starts a run with one stream attached.
func (s *Set) launch(in *guestapi.StartRequest, user string, timeout time.Duration) (*run, *attachment, error) {
	acct, err := s.accounts.Find(user)
	if err != nil {
		return nil, nil, err
	}
	if err := CheckConfig(&in.Process); err != nil {
		return nil, nil, err
	}
	p, err := s.reserve(in.Tag, acct, in.Process, in.Keep)
	if err != nil {
		return nil, nil, err
	}
	if s.cfg.Before != nil {
		s.cfg.Before(in.Tag)
	}
	r := &run{Process: p, tag: in.Tag, keep: in.Keep, expired: make(chan struct{})}
	if err := s.spawn(r, in); err != nil {
		s.table.release(in.Tag)
		return nil, nil, err
	}
	a := r.out.attach()
	s.table.add(r)
	for _, src := range r.sources {
		go src.read(r.child.done, r.out)
	}
	if timeout > 0 {
		r.timer = time.AfterFunc(timeout, func() { s.expire(r) })
	}
	go s.follow(r)
	return r, a, nil
}

// spawn starts the run's program.
func (s *Set) spawn(r *run, in *guestapi.StartRequest) error {
	env := withPlots(s.environment(r.Process, in.PTY != nil), in.Plots)
	file, err := s.Locate(r.Process, env, nil, r.config.Cmd)
	if err != nil {
		return err
	}
	if s.cfg.Watch != nil {
		s.cfg.Watch(r.cwd)
	}
	var pl *plumbing
	if in.PTY != nil {
		pl, err = newTerminal(s.epoller, r.account, in.PTY.Size)
	} else {
		var owner *account.Account
		if !s.cfg.AsSelf {
			owner = r.account
		}
		pl, err = newPipes(s.epoller, in.Stdin == nil || *in.Stdin, owner)
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") }) {
		env = append(env, "PWD="+r.cwd) // as a shell sets it
	}
	if err := s.exec(r.Process, file, env, &pl.Descriptors, in.PTY != nil); err != nil {
		pl.closeAll()
		return err
	}
	r.sources, r.stdin, r.terminal = pl.sources, pl.stdin, pl.terminal
	return nil
}

// follow reports the end of a run.
func (s *Set) follow(r *run) {
	<-r.child.done
	if r.timer != nil && !r.timer.Stop() {
		<-r.expired // the kill of the tree must finish first
	}
	detail := s.EarlyDetail(r.Process)
	if r.stdin != nil {
		r.stdin.close()
	}
	// Wait for a kill that a caller asked for, as well: the end counts the
	// survivors.
	r.AwaitKill()
	for _, src := range r.sources {
		<-src.done
	}
	s.End(r.Process, s.DescribeEnd(r.Process, detail))
}

// expire kills the tree of a run at its timeout.
func (s *Set) expire(r *run) {
	defer close(r.expired)
	r.timedOut.Store(true)
	r.limitHit.Store(s.shortages.atProcessLimit())
	_ = s.trees.kill(r.Process) // the end counts the survivors
}
