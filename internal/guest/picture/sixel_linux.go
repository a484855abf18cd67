package picture

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"io"
	"net/http"
	"strconv"

	"github.com/mattn/go-sixel"
	scale "golang.org/x/image/draw"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// minSixelSide is the smallest longer side, in pixels, that a picture is scaled to
// when its sixels are too many bytes.
const minSixelSide = 64

// encodeSixel returns a picture as sixels, at most width pixels wide. Transparent
// parts become white, because a plot's text is black also on a dark terminal.
func encodeSixel(r io.Reader, mime string, width int) ([]byte, error) {
	from, err := decodeWhole(r, mime)
	if err != nil {
		return nil, err
	}
	b := from.Bounds()
	factor := min(1, float64(width)/float64(b.Dx()), float64(sandbox.MaxSixelSide)/float64(b.Dy()))
	for {
		size := image.Rect(0, 0, max(1, int(float64(b.Dx())*factor)), max(1, int(float64(b.Dy())*factor)))
		to := image.NewNRGBA(size)
		draw.Draw(to, size, image.White, image.Point{}, draw.Src)
		scale.ApproxBiLinear.Scale(to, size, from, b, draw.Over, nil)
		var out bytes.Buffer
		if err := sixel.NewEncoder(&out).Encode(to); err != nil {
			return nil, err
		}
		if out.Len() <= sandbox.MaxSixel {
			return out.Bytes(), nil
		}
		if factor /= 1.5; max(size.Dx(), size.Dy()) <= minSixelSide {
			return nil, refusal(fmt.Sprintf("its sixels are more than %d MiB", sandbox.MaxSixel>>20))
		}
	}
}

// Sixel returns a picture as sixels, at most width pixels wide. The error is a
// [guestapi.WireError] that gives the reason. Closing done ends the work.
func (m *Maker) Sixel(done <-chan struct{}, a *account.Account, mime string, width int, open func() io.Reader) ([]byte, error) {
	if !sandbox.IsPicture(mime) {
		return nil, asWire(refusal("it is of the type " + mime))
	}
	if width < 1 || width > sandbox.MaxSixelSide {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "width %d is not from 1 to %d", width, sandbox.MaxSixelSide)
	}
	h, err := readHeader(open(), mime)
	if err == nil {
		err = h.check()
	}
	if why, ok := errors.AsType[refusal](err); ok {
		return nil, asWire(why)
	}
	return m.workApart(done, a, []string{mime, strconv.Itoa(width)}, open(), sandbox.MaxSixel)
}

// maxSixelRequest bounds a picture in base64, in bytes.
const maxSixelRequest = 24 << 20

// Routes adds the path of sixels.
func (m *Maker) Routes(mux *http.ServeMux, accounts *account.Accounts) {
	mux.HandleFunc("POST "+guestapi.PathSixels, func(w http.ResponseWriter, r *http.Request) {
		data, err := m.serveSixel(w, r, accounts)
		if err != nil {
			rpc.WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
	})
}

func (m *Maker) serveSixel(w http.ResponseWriter, r *http.Request, accounts *account.Accounts) ([]byte, error) {
	a, err := accounts.Find(rpc.User(r))
	if err != nil {
		return nil, err
	}
	width, err := strconv.Atoi(r.URL.Query().Get("width"))
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "width: it is not a number")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSixelRequest))
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read picture: %v", err)
	}
	open := func() io.Reader { return base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)) }
	return m.Sixel(r.Context().Done(), a, r.URL.Query().Get("type"), width, open)
}
