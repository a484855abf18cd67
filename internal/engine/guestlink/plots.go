package guestlink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of a figure: the bytes of its file, its MIME types, and the time to read
// it.
const (
	maxPlot     = 16 << 20
	maxForms    = 32
	plotTimeout = 15 * time.Second
)

// OpenPlots writes the backend that keeps the figures of a program into dir. With
// keepSaved, it also keeps figures that the program only saves as files.
func OpenPlots(ctx context.Context, g Guest, dir string, keepSaved bool) error {
	_, err := g.Write(ctx, path.Join(dir, guestapi.PlotModule+".py"), strings.NewReader(kernels.PlotBackend(keepSaved)), guestapi.WriteOptions{User: sandbox.User})
	return err
}

// ReadPlots calls keep with each figure in dir, in order. It reads the first most
// of them with the rights of user; keep gets the others without data, and also a
// figure that was not kept. The error is of kind NotFound if there are none.
func ReadPlots(ctx context.Context, g Guest, dir, user string, most int, keep func(sandbox.Result) error) error {
	list, err := g.ListDir(ctx, path.Join(dir, "shown"), 1, guestapi.FileOptions{User: user})
	if err != nil {
		return err
	}
	for _, f := range list.Entries {
		if !strings.HasSuffix(f.Name, ".json") {
			continue // the program was killed while it wrote the file
		}
		var p sandbox.Result
		if most--; most >= 0 && f.Type == guestapi.TypeFile && f.Size <= maxPlot {
			if p, err = readPlot(ctx, g, f.Path, user); err != nil {
				return err
			}
		}
		if err := keep(p); err != nil {
			return err
		}
	}
	return nil
}

// readPlot returns a figure. Anything else in the file is an empty one: the
// program may have written it.
func readPlot(ctx context.Context, g Guest, file, user string) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, plotTimeout)
	defer cancel()
	r, _, err := g.Read(ctx, file, 0, maxPlot, guestapi.FileOptions{User: user})
	if err != nil {
		return sandbox.Result{}, err
	}
	defer r.Close()
	data, err := decodePlot(json.NewDecoder(io.LimitReader(r, maxPlot)))
	_, malformed := errors.AsType[*json.SyntaxError](err)
	if malformed || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errNoPlot) {
		return sandbox.Result{}, nil
	}
	return sandbox.Result{Data: data}, err
}

// errNoPlot is the error of JSON that is no figure.
var errNoPlot = errors.New("it is no object, or has too many members")

// decodePlot reads an object of at most maxForms members. It reads them one by one,
// because a map of all members takes many times the size of the file.
func decodePlot(d *json.Decoder) (map[string]json.RawMessage, error) {
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, cmp.Or(err, errNoPlot)
	}
	p := map[string]json.RawMessage{}
	for n := 0; d.More(); n++ {
		if n == maxForms {
			return nil, errNoPlot
		}
		mime, err := d.Token()
		if err != nil {
			return nil, err
		}
		var form json.RawMessage
		if err := d.Decode(&form); err != nil {
			return nil, err
		}
		p[mime.(string)] = form
	}
	if _, err := d.Token(); err != nil { // the end of the object
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, cmp.Or(err, errNoPlot)
	}
	return p, nil
}
