package runlog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestResultsAreBounded has results that there is no room for.
func TestResultsAreBounded(t *testing.T) {
	files, _ := testLogFiles(t)
	l := &Results{files: files, bytes: maxResultBytes - 10}
	if err := l.Add(sandbox.Result{Main: true}); err != nil {
		t.Fatal(err)
	}
	if res, err := files.Results(); err != nil || len(res.Results) != 0 || res.Omitted != 1 {
		t.Errorf("beyond the bound: %+v, %v", res, err)
	}
}

// TestErrorsWithoutRoom has exceptions, and previews of files, that there is no
// room for. Only the name and the first words of an exception are kept then.
func TestErrorsWithoutRoom(t *testing.T) {
	for name, l := range map[string]*Results{
		"bytes": {bytes: maxResultBytes - 10},
		"room":  {room: &Room{full: true}},
	} {
		l.files, _ = testLogFiles(t)
		long := strings.Repeat("\x01", MaxErrorText)
		fail := sandbox.RunError{Name: long[:MaxErrorName], Value: long, Traceback: long, Line: 3, Source: long}
		before := l.Kept()
		if err := l.AddFile("a.png", sandbox.Preview{Data: sandbox.ToBase64(make([]byte, 1000))}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := l.Fail(fail); err != nil {
				t.Fatal(err)
			}
		}
		res, err := l.files.Results()
		if err != nil || res.Error == nil || res.Error.Name != fail.Name || res.Error.Line != 3 || res.Error.Source != "" || len(res.Files) != 0 {
			t.Errorf("%s: an exception %v, %d files, %v", name, res.Error != nil, len(res.Files), err)
		}
		if n := l.Kept() - before; n > recordSize/2 {
			t.Errorf("%s: %d bytes beyond the room", name, n)
		}
		again, err := ReopenResults(l.files, nil)
		if err != nil || again.Failure() == nil {
			t.Errorf("%s: reopened without its exception: %v", name, err)
		}
	}
}

// TestPreviewsAreBounded drops previews that are too much before what they are
// of.
func TestPreviewsAreBounded(t *testing.T) {
	files, _ := testLogFiles(t)
	l := &Results{files: files, bytes: maxResultBytes - 1000}
	p := sandbox.Preview{MIME: "image/png", Data: sandbox.ToBase64(make([]byte, 1000))}
	if err := l.Add(sandbox.Result{Main: true, Previews: map[string]sandbox.Preview{"image/png": p}}); err != nil {
		t.Fatal(err)
	}
	if err := l.AddFile("a.png", p); err != nil {
		t.Fatal(err)
	}
	res, err := files.Results()
	if err != nil || len(res.Results) != 1 || !res.Results[0].Main || len(res.Results[0].Previews) != 0 || len(res.Files) != 0 || res.Omitted != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestPicturesStayText keeps and reads pictures in base64 with stray bits at its
// end, which decoding and encoding it again would change.
func TestPicturesStayText(t *testing.T) {
	files, _ := testLogFiles(t)
	l := NewResults(files, nil)
	const data, preview sandbox.Base64 = "iVBORw0KGgp=", "iVBORw0KGgq="
	err := l.Add(CleanResult(sandbox.Result{
		Data:     map[string]json.RawMessage{"image/png": json.RawMessage(`"` + data + `"`)},
		Previews: map[string]sandbox.Preview{"image/png": {Data: preview}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	res, err := files.Results()
	if err != nil || len(res.Results) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	r := res.Results[0]
	if got, ok := r.Base64("image/png"); got != data || !ok || r.Previews["image/png"].Data != preview {
		t.Errorf("%+v", r)
	}
}
