package contexts

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MaxPreviews bounds the previews of a run, and maxPreviewing the time that they
// take together.
const (
	MaxPreviews   = 32
	maxPreviewing = 10 * time.Second
)

// withPreviewsLocked adds previews of pictures to a result, if the run's caller
// asked for them. It keeps the interpreter's order, so that events stay in
// order. An interrupt of the run ends the wait.
func (x *run) withPreviewsLocked(r *sandbox.Result) *sandbox.Result {
	if !x.req.Previews {
		return r
	}
	for mime, value := range r.Data {
		var text string
		if !sandbox.IsPicture(mime) || json.Unmarshal(value, &text) != nil {
			continue
		}
		data, err := x.previewLocked(mime, text)
		if err == nil && data == nil {
			continue // the picture is fit as it is
		}
		p := sandbox.Preview{Data: sandbox.ToBase64(data)}
		if err != nil {
			p.Why = rpc.Wire(err).Message
		}
		if r.Previews == nil {
			r.Previews = make(map[string]sandbox.Preview)
		}
		r.Previews[mime] = p
	}
	return r
}

// previewLocked returns the preview of a base64 picture.
func (x *run) previewLocked(mime, text string) ([]byte, error) {
	if x.previews >= MaxPreviews || x.previewing >= maxPreviewing {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "the run has %d pictures before it, and no more are shrunk", x.previews)
	}
	began := time.Now()
	size := int64(base64.StdEncoding.DecodedLen(len(text)))
	open := func() io.Reader { return base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)) }
	data, err := x.context.server.preview(x.hurried, x.context.account, mime, size, open)
	if err != nil || data != nil {
		x.previews++
		x.previewing += time.Since(began)
	}
	return data, err
}

// hurryLocked stops the making of previews, because the run must end. The caller
// holds x.mu.
func (x *run) hurryLocked() {
	if !x.isHurried {
		x.isHurried = true
		close(x.hurried)
	}
}
