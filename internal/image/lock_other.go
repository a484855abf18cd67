//go:build !unix

package image

import (
	"io/fs"
	"os"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func tryLock(string, bool) (*os.File, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "this system does not support an image store")
}

func diskSize(fi fs.FileInfo) int64 { return fi.Size() }
