package guestlink

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fileGuest is a guest with files in memory.
type fileGuest struct {
	Guest
	files map[string][]byte
}

func (g fileGuest) Read(_ context.Context, path string, _, _ int64, _ guestapi.FileOptions) (io.ReadCloser, int64, error) {
	text, ok := g.files[path]
	if !ok {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "no file")
	}
	return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
}

func (g fileGuest) Write(_ context.Context, path string, r io.Reader, _ guestapi.WriteOptions) (*guestapi.WriteInfo, error) {
	text, err := io.ReadAll(r)
	g.files[path] = text
	return &guestapi.WriteInfo{}, err
}

// TestTrust installs authorities twice, the second time with one more. No list has
// one of them twice.
func TestTrust(t *testing.T) {
	const end = "-----END CERTIFICATE-----\n"
	system, first, second := "system\n"+end, "first\n"+end, "second\n"+end
	for _, list := range append(bundles, "") {
		g := fileGuest{files: map[string][]byte{}}
		before := ""
		if list != "" {
			g.files[list], before = []byte(system), system
		}
		for i, authorities := range []string{first, first, first + second, first + second} {
			if err := Trust(t.Context(), g, []byte(authorities), slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{authorityFile: authorities, bundleFile: before + authorities, list: before + authorities} {
				if got := string(g.files[path]); path != "" && got != want {
					t.Errorf("%q, time %d: %s holds %q, want %q", list, i, path, got, want)
				}
			}
		}
	}
}
