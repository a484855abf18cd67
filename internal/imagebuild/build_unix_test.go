//go:build unix

package imagebuild

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestBuildPipes has pipes in the place of the files that a build reads, which
// nobody writes to.
func TestBuildPipes(t *testing.T) {
	for _, name := range []string{"Dockerfile", ".dockerignore"} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Skipf("no pipes here: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := (&Build{Images: &oneImage{}, Dir: dir, Name: "x", Said: io.Discard}).Run(context.Background())
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, sandbox.Invalid) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: the build waits for it", name)
		}
	}
}
