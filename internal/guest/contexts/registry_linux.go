package contexts

import (
	"cmp"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxContexts bounds the contexts of a sandbox. Their memory is bounded by the
	// sandbox's: a Python takes about 10 MiB.
	maxContexts = 128
	// maxContextID bounds the name of a context or a run, in bytes.
	maxContextID = 128
	// maxKept bounds the ended runs of a sandbox whose end no caller took.
	maxKept = 32
)

var errNoContext = rpc.Errorf(guestapi.CodeNotFound, "no such context")

var errNoRun = rpc.Errorf(guestapi.CodeNotFound, "no such run")

func errTooMany() error {
	return rpc.Errorf(guestapi.CodeResourceExhausted, "there are %d contexts, which is the maximum of a sandbox: remove one first", maxContexts)
}

// add registers a context.
func (reg *registry) add(c *context) error {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.byID[c.id] != nil {
		return rpc.Errorf(guestapi.CodeAlreadyExists, "context %q is there already", c.id)
	}
	if len(reg.byID) >= maxContexts {
		return errTooMany()
	}
	reg.byID[c.id] = c
	reg.made++
	c.number = reg.made
	return nil
}

// drop forgets a context.
func (reg *registry) drop(c *context) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.byID[c.id] == c {
		delete(reg.byID, c.id)
	}
}

// find returns the context of that name.
func (reg *registry) find(id string) (*context, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if c := reg.byID[id]; c != nil {
		return c, nil
	}
	return nil, errNoContext
}

// keep registers a kept run by its tag.
func (reg *registry) keep(x *run) error {
	if len(x.req.Tag) > maxContextID {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "a tag has at most %d bytes", maxContextID)
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.byTag[x.req.Tag] != nil {
		return rpc.Errorf(guestapi.CodeAlreadyExists, "there is a run %q already", x.req.Tag)
	}
	reg.byTag[x.req.Tag] = x
	return nil
}

// keepEnded records that a kept run has ended. Beyond maxKept it forgets the run
// that ended first.
func (reg *registry) keepEnded(x *run) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.byTag[x.req.Tag] != x {
		return // its end was taken
	}
	reg.ended = append(reg.ended, x)
	if len(reg.ended) > maxKept {
		delete(reg.byTag, reg.ended[0].req.Tag)
		reg.ended = reg.ended[1:]
	}
}

// forget forgets a kept run.
func (reg *registry) forget(x *run) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.byTag[x.req.Tag] == x {
		delete(reg.byTag, x.req.Tag)
	}
	reg.ended = slices.DeleteFunc(reg.ended, func(o *run) bool { return o == x })
}

// kept returns the kept run of a tag.
func (reg *registry) kept(tag string) (*run, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if x := reg.byTag[tag]; x != nil {
		return x, nil
	}
	return nil, errNoRun
}

// list returns all contexts, the first made first.
func (reg *registry) list() []*context {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return slices.SortedFunc(maps.Values(reg.byID), func(a, b *context) int { return cmp.Compare(a.number, b.number) })
}
