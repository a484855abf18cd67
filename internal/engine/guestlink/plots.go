package guestlink

import (
	"context"
	"encoding/json"
	"io"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Plot is a figure by MIME types, as in [sandbox.Result]. It is empty if the
// figure was not kept.
type Plot map[string]json.RawMessage

// maxPlot bounds the file of a figure, in bytes.
const maxPlot = 16 << 20

// OpenPlots writes the backend that keeps the figures of a program into dir. With
// keepSaved, it also keeps figures that the program only saves as files.
func OpenPlots(ctx context.Context, g Guest, dir string, keepSaved bool) error {
	_, err := g.Write(ctx, path.Join(dir, guestapi.PlotModule+".py"), strings.NewReader(kernels.PlotBackend(keepSaved)), guestapi.WriteOptions{User: sandbox.User})
	return err
}

// ReadPlots calls keep with each figure in dir, in order. It reads the first most
// of them with the rights of user; keep gets the others as empty. The error is of
// kind NotFound if there are none.
func ReadPlots(ctx context.Context, g Guest, dir, user string, most int, keep func(Plot) error) error {
	list, err := g.ListDir(ctx, path.Join(dir, "shown"), 1, guestapi.FileOptions{User: user})
	if err != nil {
		return err
	}
	for _, f := range list.Entries {
		if !strings.HasSuffix(f.Name, ".json") {
			continue // the program was killed while it wrote the file
		}
		var p Plot
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
func readPlot(ctx context.Context, g Guest, file, user string) (Plot, error) {
	r, _, err := g.Read(ctx, file, 0, maxPlot, guestapi.FileOptions{User: user})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxPlot))
	if err != nil {
		return nil, err
	}
	var p Plot
	if json.Unmarshal(text, &p) != nil {
		return nil, nil
	}
	return p, nil
}
