package process

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
)

// A Set starts, tracks and ends the processes of a sandbox. Its methods are safe
// for concurrent use.
type Set struct {
	cfg         Config
	accounts    *account.Accounts
	children    *reaper
	inheritance *inheritance
	markers     *markers
	table       *table
	trees       *trees
	shortages   *shortages
	epoller     *epoller
}

// New makes this process the parent of the sandbox's processes. From now on it
// adopts orphans and reaps every child. New fails if a system call fails.
func New(cfg Config, accounts *account.Accounts) (*Set, error) {
	s := &Set{cfg: cfg, accounts: accounts, children: newReaper(), table: newTable()}
	var err error
	if s.markers, err = newMarkers(); err != nil {
		return nil, err
	}
	if s.epoller, err = newEpoller(); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	pid := os.Getpid()
	if s.inheritance, err = newInheritance(&cfg, pid); err != nil {
		return nil, err
	}
	s.trees = &trees{
		pid: pid, asSelf: cfg.AsSelf, accounts: accounts,
		children: s.children, table: s.table, markers: s.markers,
	}
	s.shortages = newShortages(&cfg)
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, unix.SIGCHLD)
	go s.children.run(sigs)
	return s, nil
}

// Close kills every process that the set started, with all descendants.
func (s *Set) Close() error { return s.trees.killAll() }
