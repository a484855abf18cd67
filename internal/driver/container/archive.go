package container

import (
	"archive/tar"
	"io"
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
