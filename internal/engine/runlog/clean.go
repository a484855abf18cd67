package runlog

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CleanResult returns the guest's result without the invalid parts: the guest is
// not trusted.
func CleanResult(res sandbox.Result) sandbox.Result {
	return sandbox.Result{Data: cleanData(res.Data), Main: res.Main, Late: res.Late, Previews: cleanPreviews(res)}
}

func cleanData(data map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{} // without room for data: most of it may be invalid
	for mime, value := range data {
		if validMIME(mime) && (sandbox.IsJSON(mime) || isText(value)) {
			out[mime] = value
		}
	}
	return out
}

// isText reports whether a value, which is valid JSON, is a string.
func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

// validMIME reports whether a text is a MIME type without parameters.
func validMIME(mime string) bool {
	kind, sub, ok := strings.Cut(mime, "/")
	return ok && kind != "" && sub != "" && len(mime) <= 128 && !strings.ContainsFunc(mime, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$&^_.+-/", r)
	})
}

// CleanError returns the guest's exception with its texts shortened.
func CleanError(e sandbox.RunError) sandbox.RunError {
	return sandbox.RunError{
		Name:      excerpt.Cut(e.Name, MaxErrorName),
		Value:     excerpt.Cut(e.Value, MaxErrorText),
		Traceback: excerpt.Cut(e.Traceback, 2*MaxErrorText),
		Line:      max(e.Line, 0),
		Source:    excerpt.Cut(e.Source, MaxErrorText),
	}
}

// maxPreviewWhy bounds, in bytes, why there is no preview.
const maxPreviewWhy = 256

// cleanPreviews returns the previews of a result without the invalid ones.
func cleanPreviews(res sandbox.Result) map[string]sandbox.Preview {
	out := make(map[string]sandbox.Preview, len(res.Previews))
	for mime, p := range res.Previews {
		if _, ok := res.Data[mime]; !ok || !sandbox.IsPicture(mime) {
			continue
		}
		if p.Why != "" {
			out[mime] = sandbox.Preview{Why: CleanWhy(p.Why)}
			continue
		}
		out[mime] = CleanPreview(p.Data, "")
	}
	return out
}

// CleanPreview checks the size and the first bytes of a guest's preview of a
// picture. mime is the required type; "" accepts every type.
func CleanPreview(data sandbox.Base64, mime string) sandbox.Preview {
	kind := data.PictureType()
	switch {
	case data.Size() > sandbox.MaxPreview:
		return sandbox.Preview{Why: TooLarge(data.Size())}
	case kind == "":
		return sandbox.Preview{Why: "it is no picture"}
	case mime != "" && kind != mime:
		return sandbox.Preview{Why: "it is no picture of the type " + mime}
	}
	return sandbox.Preview{MIME: kind, Data: data}
}

// CleanWhy returns a text of the guest on one line, shortened.
func CleanWhy(why string) string {
	return excerpt.Cut(strings.Join(strings.Fields(strings.ToValidUTF8(why, "\uFFFD")), " "), maxPreviewWhy)
}

// TooLarge says that a picture is too large for a preview.
func TooLarge(size int64) string {
	return fmt.Sprintf("it has %s, and its sandbox cannot shrink it to %s", sandbox.FormatBytes(size), sandbox.FormatBytes(sandbox.MaxPreview))
}
