package checkpoint

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestCheck examines what a sentry may leave: whole files, files that are empty, that
// met a full disk, or that end within a page, and objects with a socket of the host.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		kernel, meta, pages string
		want                error
	}{
		"whole":           {"objects host:0 host:2", "meta", strings.Repeat("p", 2*pageSize), nil},
		"no objects":      {"", "meta", strings.Repeat("p", pageSize), sandbox.Internal},
		"no pages":        {"objects", "meta", "", sandbox.Internal},
		"half a page":     {"objects", "meta", strings.Repeat("p", pageSize+7), sandbox.Internal},
		"beyond the room": {"objects", "meta", strings.Repeat("p", smallFile+3*pageSize), sandbox.Internal},
		"a stream":        {"objects host:12", "meta", strings.Repeat("p", pageSize), ErrSocket},
		"an endpoint":     {"HostConnectedEndpoint", "meta", strings.Repeat("p", pageSize), ErrSocket},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWriter(filepath.Join(t.TempDir(), "state"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := w.Discard(); err != nil {
					t.Error(err)
				}
			}()
			if err := w.MakeRoom(SentryFiles{Memory: pageSize, Written: pageSize}); err != nil {
				t.Fatal(err)
			}
			for i, text := range []string{test.kernel, test.meta, test.pages} {
				if _, err := w.files[i].WriteString(text); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Check(); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
