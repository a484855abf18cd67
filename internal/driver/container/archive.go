package container

import (
	"archive/tar"
	"io"
	"strings"
	"time"
)

// A File is a file for a volume.
type File struct {
	Name    string
	Size    int64 // the number of bytes of Content
	Content io.Reader
}

// WriteArchive writes a tar archive of programs or texts that every user may read.
func WriteArchive(to io.Writer, files []File) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.Name, Mode: 0o755, Size: f.Size, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := io.Copy(w, f.Content); err != nil {
			return err
		}
	}
	return w.Close()
}

// WriteEmptyImage writes a tar archive with only the directories that mounts need,
// for the image of a container that needs no other program than the guest's.
func WriteEmptyImage(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, dir := range []string{GuestDir, WorkspacesDir, "/etc", "/proc", "/sys", "/dev", "/run", "/tmp"} {
		h := tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	return w.Close()
}
