package httpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These set the rate at which a body must arrive. A small body must arrive within
// ioTimeout. A large body gets one more second for each largeRate bytes.
const (
	smallBody = 64 << 10
	largeRate = 64 << 10
)

// A readBody is a body that was read into memory.
type readBody struct {
	*bytes.Reader
	data []byte
}

// Close implements [io.Closer].
func (*readBody) Close() error { return nil }

// Whole returns the body without a copy.
func (b *readBody) Whole() []byte { return b.data }

// bound reads the body of a request into memory and then calls next. It limits
// the body's size, the time in which it arrives, and the total size of each
// principal's bodies.
func (s *Server) bound(next http.Handler, refuse refuser) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		whole := r.Body
		data, hold, err := s.readBody(w, r)
		defer hold.Release()
		if err != nil {
			w.Header().Set("Connection", "close") // the rest of the body was not read
			s.refuseBody(w, r, err, refuse)
			if !errors.Is(err, errSlowBody) {
				drain(w, whole)
			}
			return
		}
		r.Body = &readBody{bytes.NewReader(data), data}
		next.ServeHTTP(w, r)
	})
}

// The reasons for refusing a body, other than a principal's share.
var (
	errLargeBody = errors.New("the body is too large")
	errSlowBody  = errors.New("the body is too slow")
)

func (s *Server) refuseBody(w http.ResponseWriter, r *http.Request, err error, share refuser) {
	switch {
	case errors.Is(err, errLargeBody):
		refuse(w, http.StatusRequestEntityTooLarge, string(sandbox.Invalid),
			"the body is larger than "+sandbox.FormatBytes(s.opts.MaxBodyBytes)+", the maximum of this server", "")
	case errors.Is(err, errSlowBody):
		refuse(w, http.StatusRequestTimeout, string(sandbox.Invalid), "the body came too slowly",
			"send it within "+ioTimeout.String()+", and a large body at "+sandbox.FormatBytes(largeRate)+" per second or faster")
	case errors.Is(err, sandbox.Exhausted):
		share(w, r, fullFor(s.shares.bodies, r, err))
	default:
		refuse(w, http.StatusBadRequest, string(sandbox.Invalid), "the body ended early", "")
	}
}

// readBody reads a body and returns it with the hold for its bytes. The caller
// must release the hold, even after an error.
//
// readBody holds nothing until the first bytes arrive. It reads up to smallBody
// bytes under a small hold, which does not wait for large bodies. For a larger
// body it then acquires units for the whole body, with back-pressure on the
// client. It releases the small hold first, so that waiting requests do not block
// each other.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (data []byte, hold *fair.Hold, err error) {
	size := r.ContentLength
	if size > s.opts.MaxBodyBytes {
		return nil, nil, errLargeBody
	}
	most := s.opts.MaxBodyBytes
	if size >= 0 {
		most = size
	}
	began := time.Now()
	rc := http.NewResponseController(w)
	// A ResponseWriter without deadlines has no connection, so its bodies cannot
	// be slow.
	if rc.SetReadDeadline(began.Add(ioTimeout)) == nil {
		// Afterwards, net/http reads in the background to detect a disconnect, so
		// remove the deadline.
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	ctx, cancel := context.WithDeadline(r.Context(), began.Add(ioTimeout))
	defer cancel()
	id, _ := auth.FromContext(r.Context())
	acquire := func(units int64) error {
		hold.Release()
		hold, err = s.shares.bodies.Acquire(ctx, fair.Request{Principal: id.Principal, Units: units})
		return err
	}

	var first [512]byte
	n, err := r.Body.Read(first[:min(int64(len(first)), most+1)])
	data = first[:n]
	for _, step := range []int64{min(most, smallBody), most} {
		if err != nil {
			break
		}
		if int64(len(data)) >= step && step < most {
			continue
		}
		if err := acquire(max(1, step)); err != nil {
			return nil, hold, err
		}
		if step > smallBody {
			_ = rc.SetReadDeadline(time.Now().Add(ioTimeout + time.Duration(step)*time.Second/largeRate))
		}
		limit := step
		if step == most {
			limit++ // one more byte, to find the end
		}
		if size >= 0 {
			data = append(make([]byte, 0, limit), data...)
		}
		if data, err = readUpTo(r.Body, data, int(limit)); step == most {
			break
		}
	}
	switch {
	case int64(len(data)) > most && size < 0:
		return nil, hold, errLargeBody
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, hold, errSlowBody
	case err != nil && !errors.Is(err, io.EOF):
		return nil, hold, err
	}
	if hold == nil {
		if err := acquire(int64(max(1, n))); err != nil {
			return nil, hold, err
		}
		data = bytes.Clone(data)
	}
	_ = hold.Resize(int64(len(data))) // a decrease always succeeds
	return data, hold, nil
}

// readUpTo reads until data has limit bytes or an error occurs, which may be
// [io.EOF].
func readUpTo(r io.Reader, data []byte, limit int) ([]byte, error) {
	for len(data) < limit {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(limit, max(512, 2*cap(data))))
			copy(grown, data)
			data = grown
		}
		n, err := r.Read(data[len(data):min(limit, cap(data))])
		data = data[:len(data)+n]
		if err != nil {
			return data, err
		}
	}
	return data, nil
}
