package contexts

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/language"
)

// maxReady bounds the start of an interpreter.
const maxReady = time.Minute

// ensure returns the context's interpreter, and starts one if there is none. The
// caller holds the context's turn, or has just made the context.
func (c *context) ensure(done <-chan struct{}) (*interpreter, error) {
	c.mu.Lock()
	it, removed := c.live, c.removed
	c.mu.Unlock()
	if removed {
		return nil, errNoContext
	}
	if it != nil {
		select {
		case <-it.dead:
		default:
			return it, it.wait(done)
		}
	}
	it, err := c.start()
	if err != nil {
		return nil, err
	}
	return it, it.wait(done)
}

// wait waits until the kernel is ready.
func (it *interpreter) wait(done <-chan struct{}) error {
	select {
	case <-it.ready:
		return nil
	default:
	}
	timer := time.NewTimer(maxReady)
	defer timer.Stop()
	select {
	case <-it.ready:
		return nil
	case <-it.dead:
		c := it.context
		c.mu.Lock()
		missing := it.missing
		if missing != "" {
			c.lost = "" // no state was lost
		}
		c.mu.Unlock()
		if missing != "" {
			return rpc.Errorf(guestapi.CodeUnimplemented, "the kernel %s is not in this sandbox: %.200s; Debian's package is python3-ipython, and pip's is ipython", c.program.Name, missing)
		}
		text := strings.TrimSpace(it.process.ErrorTail())
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		if c.program.Source != "" { // a bare runtime lacks what runs it
			text += source(c.program.Language)
		}
		return rpc.Errorf(guestapi.CodeUnavailable, "%s did not start as an interpreter of %s: %s", it.command, c.program.Language, text)
	case <-timer.C:
		_ = it.context.server.processes.Kill(it.process)
		return rpc.Errorf(guestapi.CodeUnavailable, "%s did not start within %s", it.command, maxReady)
	case <-done:
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left")
	}
}

// start starts an interpreter.
func (c *context) start() (*interpreter, error) {
	c.mu.Lock()
	cwd, envs := c.cwd, c.env // replaced, never changed
	c.moved = false
	c.mu.Unlock()
	p, err := c.server.processes.Reserve(c.account, guestapi.ProcessConfig{Cwd: cwd, Envs: envs})
	if err != nil {
		return nil, err
	}
	it := &interpreter{context: c, process: p, env: envs, ready: make(chan struct{}), prepared: make(chan struct{}, 1), dead: make(chan struct{})}
	var key [kernels.KeySize / 2]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	it.key = hex.EncodeToString(key[:])
	it.assembler.Key = it.key
	if err := it.spawn(); err != nil {
		return nil, err
	}
	c.server.processes.Track(p)
	c.mu.Lock()
	c.live, it.dir = it, p.Dir()
	removed := c.removed
	c.mu.Unlock()
	go it.read()
	go it.listen()
	go it.follow()
	// In a goroutine: a kernel that never reads must not block the caller.
	go func() {
		_ = it.request(c.program.Start(it.command, kernels.Init{Key: it.key, Prepare: c.prepare}))
	}()
	if removed {
		// The context was removed meanwhile, and end found no interpreter.
		_ = c.server.processes.Kill(p)
		return nil, rpc.Errorf(guestapi.CodeNotFound, "context %s was removed", c.id)
	}
	return it, nil
}

// spawn makes the interpreter's descriptors and starts its program.
func (it *interpreter) spawn() error {
	c, p, processes := it.context, it.process, it.context.server.processes
	env := processes.Environment(p)
	missing := rpc.Errorf(guestapi.CodeNotFound, "%s is not in this sandbox: no %s on its PATH%s", c.program.Language, strings.Join(c.program.Commands, " or "), source(c.program.Language))
	file, err := processes.Locate(p, env, missing, c.program.Commands...)
	if err != nil {
		return err
	}
	it.command = file
	d := new(process.Descriptors)
	owner := p.Account()
	if c.server.asSelf {
		owner = nil
	}
	it.outputs = [2]outlet{{fd: -1, stream: guestapi.Stdout}, {fd: -1, stream: guestapi.Stderr}}
	closeAll := func() {
		d.CloseAll()
		for _, fd := range []int{it.quit, it.outputs[0].fd, it.outputs[1].fd} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	fail := func(err error) error {
		closeAll()
		return rpc.Exhausted("make descriptors of an interpreter", err)
	}
	if it.quit, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		it.quit = -1
		return fail(err)
	}
	if err := d.AddNull(unix.O_RDONLY); err != nil {
		return fail(err)
	}
	for i := range it.outputs {
		if it.outputs[i].fd, err = addOutlet(d, owner); err != nil {
			return fail(err)
		}
	}
	if it.requests, it.events, err = addWires(d, c.program, owner); err != nil {
		return fail(err)
	}
	if c.program.Source != "" {
		if it.code, err = addMemory(d); err != nil {
			return fail(err)
		}
		if err := it.setCode([]byte(c.program.Source)); err != nil {
			return fail(err)
		}
	}
	if c.program.Shell {
		if it.code, err = addMemory(d); err != nil {
			return fail(err)
		}
		if it.stdin, err = d.AddPipe(true); err != nil {
			return fail(err)
		}
	}
	if err := processes.Exec(p, file, c.program.Args(file), env, d); err != nil {
		closeAll()
		return err
	}
	return nil
}

// source tells where a missing language comes from.
func source(name string) string {
	l, ok := language.Find(name)
	if !ok || l.Package == "" {
		return ""
	}
	return fmt.Sprintf("; Debian's package is %s, and the image %s has it", l.Package, l.Image)
}
