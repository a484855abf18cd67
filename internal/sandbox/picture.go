package sandbox

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// MaxPreview bounds the size of a picture for a model, in bytes.
const MaxPreview = 1 << 20

// MIMESixel is the type of a picture as sixels, the form in which many terminals
// display pictures. MaxSixel bounds its size in bytes, and MaxSixelSide its
// width and its height in pixels.
const (
	MIMESixel    = "image/x-sixel"
	MaxSixel     = 2 << 20
	MaxSixelSide = 1568
)

// A Preview is a model's version of a picture. Data is a PNG or JPEG that the
// sandbox made of it. If there is none, Why says the reason. Both come from the
// sandbox.
type Preview struct {
	MIME string `json:"mime,omitempty"`
	Data Base64 `json:"data,omitempty"`
	Why  string `json:"why,omitempty"`
}

// Base64 is data of a sandbox in standard base64, which nothing has decoded or
// checked. A picture stays in this form from its guest through the run log to the
// edge that needs its bytes, so it is decoded once. On other ways it is copied as
// text.
type Base64 string

// ToBase64 encodes data.
func ToBase64(data []byte) Base64 { return Base64(base64.StdEncoding.EncodeToString(data)) }

// Decode returns the data. The error says that the text is not base64.
func (b Base64) Decode() ([]byte, error) { return base64.StdEncoding.DecodeString(string(b)) }

// Size returns the number of bytes that Decode returns at most, without decoding.
func (b Base64) Size() int64 {
	text := strings.TrimRight(string(b), "\r\n=")
	return int64(base64.RawStdEncoding.DecodedLen(len(text)))
}

// PictureType is [PictureType] of the data. It decodes the first bytes only.
func (b Base64) PictureType() string {
	const quanta = 4 // of 3 bytes in 4 characters
	head := b[:min(len(b), 4*quanta)]
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(head), "\r\n="))
	if err != nil {
		return ""
	}
	return PictureType(data)
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
