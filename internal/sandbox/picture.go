package sandbox

import "bytes"

// MaxPreview bounds a picture that is shown to a model, in bytes.
const MaxPreview = 1 << 20

// A Preview is what a model is shown of a picture: Data, a PNG or JPEG that the
// sandbox made of it, or else Why there is none. Both come from the sandbox.
type Preview struct {
	MIME string `json:"mime,omitempty"`
	Data []byte `json:"data,omitempty"`
	Why  string `json:"why,omitempty"`
}

// IsPicture reports whether a MIME type is that of a picture that models are
// shown.
func IsPicture(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

// PictureType returns the MIME type of a picture by its first bytes, or "" for
// data of no type that models are shown. Nothing else of the data is looked at:
// the host parses no picture.
func PictureType(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif"
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}
