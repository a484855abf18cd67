package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Pictures are decoded in their sandbox, by its guest, and never in this
// process. A few bytes can cost a decoder any amount of memory, and this
// process serves every principal. The record of a run has the guest's previews,
// so that reading it later needs no decoding.

// Bounds on the previews of pictures that a run left in its workspace.
const (
	maxFilePreviews = 4
	maxFilePicture  = 4 << 20 // bytes of a picture that is previewed
	// previewTimeout bounds all previews of a run together, because the end of
	// the run waits for them.
	previewTimeout = 8 * time.Second
)

// pictureByName returns the MIME type of a picture by its file name, or "" if
// the name is of no picture.
func pictureByName(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	}
	return ""
}

// keepPreviews keeps previews of the first pictures that the run left in its
// workspace. It makes none if the sandbox is being stopped.
func (r *Run) keepPreviews(changes *sandbox.Changes) {
	if changes == nil {
		return
	}
	if r.in.stops() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.set.ctx), previewTimeout)
	defer cancel()
	left := maxFilePreviews
	for _, f := range changes.Files {
		mime := pictureByName(f.Path)
		if left == 0 || ctx.Err() != nil {
			return
		}
		if mime == "" || f.Change == sandbox.FileRemoved || f.Size <= 0 || strings.ContainsRune(f.Path, '\uFFFD') {
			continue
		}
		left--
		if err := r.results.AddFile(f.Path, r.preview(ctx, f, mime)); err != nil {
			r.set.opts.Log.Error("keep previews", "run", r.rec.ID, "error", err)
			return
		}
	}
}

// preview has the guest make a preview of a picture in the workspace. If the
// guest makes none, because it is older or another implementation, preview uses
// the picture itself, if that is small.
func (r *Run) preview(ctx context.Context, f sandbox.FileChange, mime string) sandbox.Preview {
	if f.Size > maxFilePicture {
		return sandbox.Preview{Why: fmt.Sprintf("it has %s, more than %s", sandbox.FormatBytes(f.Size), sandbox.FormatBytes(maxFilePicture))}
	}
	name := f.Path
	if !path.IsAbs(name) {
		name = sandbox.WorkDir + "/" + name
	}
	data, err := r.in.Guest.Preview(ctx, name, mime, guestapi.FileOptions{})
	switch {
	case err == nil:
		return runlog.CleanPreview(sandbox.ToBase64(data), "")
	case errors.Is(err, sandbox.Unsupported), errors.Is(err, sandbox.NotFound):
	case errors.Is(err, sandbox.Invalid):
		return sandbox.Preview{Why: runlog.CleanWhy(strings.TrimPrefix(err.Error(), "preview picture: "))}
	default:
		r.set.opts.Log.Debug("preview picture", "sandbox", r.in.ID, "error", err)
		return sandbox.Preview{Why: "its sandbox did not answer"}
	}
	content, size, err := r.in.Guest.Read(ctx, name, 0, sandbox.MaxPreview, guestapi.FileOptions{})
	if err != nil {
		return sandbox.Preview{Why: "it could not be read"}
	}
	defer content.Close()
	if size > sandbox.MaxPreview {
		return sandbox.Preview{Why: runlog.TooLarge(size)}
	}
	if data, err = io.ReadAll(io.LimitReader(content, sandbox.MaxPreview)); err != nil {
		return sandbox.Preview{Why: "it could not be read"}
	}
	return runlog.CleanPreview(sandbox.ToBase64(data), mime)
}
