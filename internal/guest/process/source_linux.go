package process

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Bounds on small reads of output, of which each wakes the guest.
const (
	// FloodRead is the size, in bytes, from which a read of output is worth its
	// wake-up.
	FloodRead = 32 << 10
	// FloodPause is how long a reader lets output gather after small reads in
	// quick succession. FloodGap is the longest interval between such reads.
	FloodPause = 500 * time.Microsecond
	FloodGap   = time.Millisecond
)

const (
	// maxQuiet is how long the output of an ended process may be silent before
	// it counts as complete. A descendant may hold the output open.
	maxQuiet = 100 * time.Millisecond
	// maxLinger bounds how long such a descendant can delay the end by writing
	// without pause.
	maxLinger = time.Second
	// pipeSize is the size of an output pipe after a read of at least muchOutput
	// bytes. It lets the process write on while the guest sends its output.
	// maxPending is at least the capacity of a pipe or terminal.
	pipeSize   = 256 << 10
	muchOutput = 32 << 10
	maxPending = 1 << 20
)

// A source is one output stream of a run.
type source struct {
	from   *readEnd
	stream guestapi.Stream
	done   chan struct{} // closed when all output that counts was read
	// master is the master side of the stream's terminal. It is closed when no
	// process has the terminal open.
	master *os.File
}

// read carries output to out until its end. After the process has exited, it
// reads the rest of the process's output and waits until descendants are quiet.
// Their later output is read and dropped, so that they do not block.
func (s *source) read(exited <-chan struct{}, out *output) {
	defer s.close()
	if s.carry(exited, out) {
		return
	}
	for {
		buf, _, err := s.from.chunk()
		switch {
		case err == unix.EAGAIN:
			if _, err := s.from.wait(nil, nil); err != nil {
				return
			}
		case buf == nil:
			return
		default:
			chunkPool.Put(buf)
		}
	}
}

// carry delivers the output that counts. It reports whether the stream has
// ended.
func (s *source) carry(exited <-chan struct{}, out *output) bool {
	defer close(s.done)
	// exited is nil after its close was seen.
	var (
		until   time.Time // when lingering ends
		owed    int       // upper bound of the process's unread output
		quiet   *time.Timer
		after   <-chan time.Time // the channel of quiet
		expired bool
		grown   bool      // the pipe has pipeSize
		last    time.Time // time of the last read
	)
	if _, err := s.from.wait(exited, nil); err != nil {
		return true
	}
	for {
		select {
		case <-exited:
			exited, owed, until = nil, maxPending, time.Now().Add(maxLinger)
			quiet = time.NewTimer(maxQuiet)
			defer quiet.Stop()
			after = quiet.C
		default:
		}
		buf, n, err := s.from.chunk()
		if err == unix.EAGAIN {
			if exited == nil {
				owed = 0
				if expired {
					return false
				}
			}
			ready, err := s.from.wait(exited, after)
			if err != nil {
				return true
			}
			// Try one more read: on a busy machine there may be output that is
			// not seen yet.
			expired = !ready && exited == nil
			continue
		}
		if buf == nil { // nil without EAGAIN is the end; a terminal ends with EIO
			return true
		}
		if n >= muchOutput && !grown {
			// If the OS kernel refuses a larger buffer, the usual one stays.
			_, _ = unix.FcntlInt(uintptr(s.from.fd), unix.F_SETPIPE_SZ, pipeSize)
			grown = true
		}
		out.add(s.stream, buf, n)
		now := time.Now()
		if exited == nil {
			owed -= n
			if owed <= 0 && now.After(until) {
				return false
			}
			expired = false
			quiet.Reset(maxQuiet)
		} else if n < FloodRead && now.Sub(last) < FloodGap {
			time.Sleep(FloodPause)
		}
		last = now
	}
}

func (s *source) close() {
	s.from.close()
	if s.master != nil {
		s.master.Close()
	}
}
