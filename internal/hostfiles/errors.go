package hostfiles

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hostError gives an error about this machine's files a kind.
func hostError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.NotFound, "host_path: there is no such file")
	case errors.Is(err, fs.ErrPermission):
		return sandbox.Errorf(sandbox.Invalid, "host_path: %w", err)
	case errors.Is(err, safepath.ErrName), errors.Is(err, safepath.ErrType), errors.Is(err, fs.ErrExist):
		return sandbox.Errorf(sandbox.Invalid, "host_path: %w", err)
	case errors.Is(err, safepath.ErrLimit):
		return sandbox.Errorf(sandbox.Exhausted, "host_path: %w", err)
	case strings.Contains(err.Error(), "escapes from parent"):
		return sandbox.Errorf(sandbox.Invalid, "host_path: a link leads out of the directory that was allowed")
	}
	return err
}

// explain adds the kinds to errors.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case sandbox.KindOf(err) != sandbox.Internal:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.NotFound, "%w", err)
	case errors.Is(err, safepath.ErrLimit):
		return sandbox.Errorf(sandbox.Exhausted, "%w", err)
	case errors.Is(err, safepath.ErrName), errors.Is(err, safepath.ErrType), errors.Is(err, fs.ErrPermission), isPathError(err):
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	return err
}

// isPathError reports whether the system refused to open a file.
func isPathError(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}
