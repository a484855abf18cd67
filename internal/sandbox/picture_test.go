package sandbox

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestBase64 compares what is known without decoding with the decoded data.
func TestBase64(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	for _, data := range [][]byte{nil, []byte("x"), png[:7], png, append(png, 1), append(png, 1, 2), append(png, make([]byte, 100)...), []byte("RIFF....WEBP"), []byte("GIF89a")} {
		for _, end := range []string{"", "\n"} {
			text := ToBase64(data) + Base64(end)
			got, err := text.Decode()
			if err != nil || !bytes.Equal(got, data) || text.Size() != int64(len(data)) || text.PictureType() != PictureType(data) {
				t.Errorf("%q is %q, %v, %d bytes, type %q", text, got, err, text.Size(), text.PictureType())
			}
		}
	}
	for _, text := range []Base64{"!", "iVBORw0KGgo!", "i", "====", "\n\n"} {
		if kind := text.PictureType(); kind != "" {
			t.Errorf("%q has the type %q", text, kind)
		}
	}
}

func TestResultBase64(t *testing.T) {
	for value, want := range map[string]Base64{
		`"AQI="`: "AQI=", `"AQ\/="`: "AQ/=", `"AQI=\n"`: "AQI=\n", `""`: "",
	} {
		r := Result{Data: map[string]json.RawMessage{"image/png": json.RawMessage(value)}}
		if got, ok := r.Base64("image/png"); got != want || !ok {
			t.Errorf("%s is %q, %v; want %q", value, got, ok, want)
		}
	}
	for _, value := range []string{`1`, `null`, `["a"]`, `"`, ``} {
		r := Result{Data: map[string]json.RawMessage{"image/png": json.RawMessage(value)}}
		if got, ok := r.Base64("image/png"); ok {
			t.Errorf("%s is %q", value, got)
		}
	}
	if _, ok := (Result{}).Base64("image/png"); ok {
		t.Error("a result without a picture has one")
	}
}
