package sandbox

import "bytes"

// MaxPreview bounds the size of a picture for a model, in bytes.
const MaxPreview = 1 << 20

// A Preview is a model's version of a picture. Data is a PNG or JPEG that the
// sandbox made of it. If there is none, Why says the reason. Both come from the
// sandbox.
type Preview struct {
	MIME string `json:"mime,omitempty"`
	Data []byte `json:"data,omitempty"`
	Why  string `json:"why,omitempty"`
}

// IsPicture reports whether models accept pictures of a MIME type.
func IsPicture(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

// PictureType returns the MIME type of a picture by its first bytes, or "" for
// data of another type. It reads only these bytes, because the host parses no
// picture from a sandbox.
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
