package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// destroy ends a box and removes all of it, in whatever state it is.
func (m *maker) destroy(ref string) error {
	b := m.known(ref)
	if b == nil {
		var err error
		if b, err = m.load(ref); errors.Is(err, driver.ErrGone) {
			// Perhaps its maker died before it wrote a record.
			b = &madeBox{record: record{Spec: driver.Spec{ID: ref}}, dir: m.boxDir(ref)}
			if m.cgs != nil {
				b.record.Cgroup = m.cgs.of(ref)
			}
		} else if err != nil {
			return err
		}
	}
	// Before the lock: whoever has it may be waiting for a kernel that does not
	// answer, and a dead one does.
	if err := m.kill(b); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	err := m.end(b)
	if err == nil {
		b.gone = true
		m.forget(ref)
	}
	return err
}

// end kills what runs and removes what is kept. The caller holds b.mu.
func (m *maker) end(b *madeBox) error {
	if b.watch != nil {
		b.watch.stop()
	}
	var errs []error
	if err := m.kill(b); err != nil {
		errs = append(errs, err)
	}
	if err := b.forgetContainer(m.runscDir()); err != nil {
		errs = append(errs, err)
	}
	if err := b.record.Cgroup.remove(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the record stays for the next try
	}
	return os.RemoveAll(b.dir)
}

// kill kills the processes of a box and returns when there are none. Those of
// one that was made here are known. Of any other all processes of the machine
// must be looked at, which takes the longer the more boxes there are.
func (m *maker) kill(b *madeBox) error {
	m.mu.Lock()
	known, children := b.own && b.ready, slices.Clone(b.children)
	m.mu.Unlock()
	id := b.record.Spec.ID
	if !known {
		if err := killBox(id); err != nil {
			return err
		}
	}
	for _, pid := range children {
		if err := killProcess(pid, id); err != nil {
			return err
		}
	}
	for _, pid := range children {
		if err := waitChild(pid); err != nil {
			return err
		}
	}
	return nil
}

// killTime bounds how long a killed process may take to end.
const killTime = 10 * time.Second

// waitChild waits for the end of a child that was killed, unless reap did.
func waitChild(pid int) error {
	if pid <= 0 {
		return nil // there was none
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(killTime); ; {
		if n, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); n != 0 || err != nil {
			return nil // its number may be another's by now, which is no child
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d does not end", pid)
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
	}
}

// killBox kills the processes that bear a box's name, and returns when there are
// none.
func killBox(id string) error {
	for deadline := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) {
		pids := processes(id)
		if len(pids) == 0 {
			return nil
		}
		var errs []error
		for _, pid := range pids {
			errs = append(errs, killProcess(pid, id))
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("processes %v do not end", pids), errors.Join(errs...))
		}
	}
}

// killProcess kills a process if it still is of that box: its number may be
// another's since it was found.
func killProcess(pid int, id string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	if !ownsProcess(pid, id) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// forgetContainer removes what gVisor keeps of a box whose processes are gone.
func (b *madeBox) forgetContainer(runscDir string) error {
	c, err := loadContainer(runscDir, b.record.Spec.ID)
	if err != nil {
		return err
	}
	if c != nil {
		// Their numbers may be others' by now.
		c.Sandbox.Pid.Store(0)
		c.GoferPid.Store(0)
		if err := c.Destroy(); err != nil {
			return fmt.Errorf("destroy container: %w", err)
		}
	}
	// One that died while being made has no state, but perhaps its lock and
	// its socket.
	return removeState(runscDir, b.record.Spec.ID)
}
