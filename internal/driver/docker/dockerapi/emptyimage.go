package dockerapi

import (
	"archive/tar"
	"io"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
)

// WriteEmptyImage writes a tar archive with only the directories that mounts need,
// for the image of a container that needs no other program than the guest's.
func WriteEmptyImage(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, dir := range []string{container.GuestDir, container.WorkspacesDir, "/etc", "/proc", "/sys", "/dev", "/run", "/tmp"} {
		h := tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	return w.Close()
}
