package process

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// plumbing is the input and output of a new run.
type plumbing struct {
	Descriptors
	sources  []*source
	stdin    *input
	terminal *os.File
}

// closeAll closes everything, if the run does not start.
func (pl *plumbing) closeAll() {
	pl.CloseAll()
	for _, s := range pl.sources {
		s.from.close()
	}
}

// source makes a source of the guest's end of a stream. It takes fd over.
func (pl *plumbing) source(p *epoller, fd int, stream guestapi.Stream) error {
	from, err := p.add(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	pl.sources = append(pl.sources, &source{from: from, stream: stream, done: make(chan struct{})})
	return nil
}

// newPipes makes the input and output of a run without a terminal. The pipes
// belong to owner; nil is the guest.
func newPipes(p *epoller, withInput bool, owner *account.Account) (*plumbing, error) {
	pl := new(plumbing)
	fail := func(err error) (*plumbing, error) {
		pl.closeAll()
		return nil, rpc.Exhausted("make pipe", err)
	}
	if withInput {
		w, err := pl.pipe(true, owner)
		if err != nil {
			return fail(err)
		}
		pl.stdin = newInput(w)
	} else if err := pl.AddNull(unix.O_RDONLY); err != nil {
		return fail(err)
	}
	for _, name := range []guestapi.Stream{guestapi.Stdout, guestapi.Stderr} {
		r, err := pl.rawPipe(false, owner)
		if err != nil {
			return fail(err)
		}
		if err := pl.source(p, r, name); err != nil {
			return fail(err)
		}
	}
	return pl, nil
}
