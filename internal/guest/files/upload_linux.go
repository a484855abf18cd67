package files

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	c, err := s.filesUser(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	mt, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "bad Content-Type: %v", err)
	}
	metadata, err := metadataOf(r.Header)
	if err != nil {
		return err
	}
	body := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip": // the limit on the sandbox's disk bounds the output
		if body, err = gzip.NewReader(r.Body); err != nil {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "read gzip: %v", err)
		}
	default:
		return rpc.Errorf(guestapi.CodeInvalidArgument, "unknown Content-Encoding %s", encoding)
	}
	var infos []guestapi.WriteInfo
	switch mt {
	case "application/octet-stream":
		w := write{name: q.Get("path"), metadata: metadata, append: q.Get("append") == "true"}
		info, err := s.store(c, w, body)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	case "multipart/form-data":
		infos, err = s.storeForm(c, write{name: q.Get("path"), metadata: metadata}, body, params["boundary"])
		if err != nil {
			return err
		}
	default:
		return rpc.Errorf(guestapi.CodeInvalidArgument, "unknown Content-Type %s", mt)
	}
	if !rpc.Extended(r) {
		for i := range infos {
			infos[i].Type = guestapi.TypeWritten
		}
	}
	rpc.WriteJSON(w, http.StatusOK, infos)
	return nil
}

// maxParts bounds the files in one form.
const maxParts = 1000

// storeForm writes the "file" parts of a form. A single part goes to the write's
// file, if that has a name. Otherwise each part goes to its own file name.
func (s *Server) storeForm(c *caller, to write, body io.Reader, boundary string) ([]guestapi.WriteInfo, error) {
	if boundary == "" {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "form without a boundary")
	}
	form := multipart.NewReader(body, boundary)
	var infos []guestapi.WriteInfo
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read form: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		if len(infos) >= maxParts || to.name != "" && len(infos) > 0 {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "too many files in the form")
		}
		w := to
		if w.name == "" {
			// Not part.FileName, which removes the directory.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil {
				return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read form: %v", err)
			}
			w.name = params["filename"]
		}
		info, err := s.store(c, w, part)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	if len(infos) == 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no file in the form")
	}
	return infos, nil
}
