package dashboard

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestFiles(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	_, body := w.get(Path + "sandboxes/" + box + "/files")
	for _, want := range []string{"dir/</a>", "a.png</a>", "more entries", url.Values{"path": {"/data/" + named}}.Encode()} {
		if !strings.Contains(body, want) {
			t.Errorf("the list lacks %s:\n%s", want, body)
		}
	}
	for name, want := range map[string]string{named: "&lt;script&gt;", "a.png": "/picture?", "binary": "not a text", "empty": "is empty"} {
		if res, body := w.get(ofFile("file", name)); res.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	if res, _ := w.get(ofFile("file", "dir")); res.StatusCode != 303 || res.Header.Get("Location") != ofFile("files", "dir") {
		t.Errorf("a directory: %d to %s", res.StatusCode, res.Header.Get("Location"))
	}
	res, body := w.get(ofFile("download", named))
	if body != script || res.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment; filename=") {
		t.Errorf("a download: %q %v", body, res.Header)
	}
	for _, path := range []string{ofFile("picture", named), ofFile("picture", "none"), ofFile("file", "none"), ofFile("download", "none")} {
		if res, _ := w.get(path); res.StatusCode != 404 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	w.engine.files["/data/long"] = strings.Repeat("é", maxPreview)
	if _, body := w.get(ofFile("file", "long")); !strings.Contains(body, "Only the beginning") || len(body) > maxPreview+10_000 {
		t.Errorf("a long text has a page of %d bytes", len(body))
	}
	w.engine.box.State = sandbox.Stopped
	if res, body := w.get(Path + "sandboxes/" + box + "/files"); res.StatusCode != 409 || !strings.Contains(body, "has stopped") {
		t.Errorf("of a stopped sandbox: %d %s", res.StatusCode, body)
	}
}

// TestFilesNeedScope has a token look at files that lacks the scope for them.
func TestFilesNeedScope(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("runonly")
	for _, path := range []string{ofFile("files", ""), ofFile("file", "empty"), ofFile("download", "empty"), ofFile("picture", "a.png")} {
		if res, body := w.get(path); res.StatusCode != 403 || !strings.Contains(body, "scope files") {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	if res, _ := w.do(w.upload(ofFile("files", ""), "file", "x")); res.StatusCode != 403 || w.engine.files["/data/x"] != "" {
		t.Errorf("upload: %d", res.StatusCode)
	}
}

// upload returns a request with files of the form, each with its name as content.
func (w *world) upload(to, field string, names ...string) *http.Request {
	w.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, name := range names {
		part, err := m.CreateFormFile(field, name)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := part.Write([]byte(name)); err != nil {
			w.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		w.Fatal(err)
	}
	r := httptest.NewRequestWithContext(w.Context(), http.MethodPost, to, &b)
	r.Header = w.request(http.MethodPost, to, nil).Header
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.RemoteAddr = w.remote
	return r
}

func TestUpload(t *testing.T) {
	for _, test := range []struct {
		field string
		names []string
		want  int
		files []string // that exist then
	}{
		{"file", []string{"a", "b c.txt"}, 303, []string{"a", "b c.txt"}},
		{"file", []string{"../../etc/passwd"}, 303, []string{"passwd"}},
		{"file", []string{".."}, 400, nil},
		{"file", []string{"a\\b"}, 400, nil},
		{"file", []string{strings.Repeat("x", 256)}, 400, nil},
		{"file", nil, 400, nil},
		{"other", []string{"a"}, 400, nil},
	} {
		w := newWorld(t, nil)
		w.signIn("alice")
		w.engine.files = map[string]string{}
		want := map[string]string{}
		for _, name := range test.files {
			want["/data/dir/"+name] = name
		}
		res, body := w.do(w.upload(ofFile("files", "dir"), test.field, test.names...))
		if test.names != nil && strings.HasPrefix(test.names[0], "../../") {
			want["/data/dir/passwd"] = test.names[0]
		}
		if res.StatusCode != test.want || !cmp.Equal(w.engine.files, want) {
			t.Errorf("%.40q: %d %v %s", test.names, res.StatusCode, w.engine.files, body)
		}
	}
	w := newWorld(t, nil)
	w.signIn("alice")
	if res, _ := w.post(ofFile("files", "dir"), url.Values{"file": {"x"}}); res.StatusCode != 400 {
		t.Errorf("another form: %d", res.StatusCode)
	}
}

func TestTry(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	if _, body := w.get(Path + "try"); !strings.Contains(body, `<option value="bash">`) || !strings.Contains(body, "platform") {
		t.Errorf("the editor is\n%s", body)
	}
	res, _ := w.post(Path+"try", url.Values{"code": {"one\r\ntwo"}, "language": {"python"}})
	if res.StatusCode != 303 || res.Header.Get("Location") != Path+"runs/"+theRun {
		t.Errorf("%d to %s", res.StatusCode, res.Header.Get("Location"))
	}
	want := []sandbox.RunRequest{{Code: "one\ntwo", Language: "python", Context: sandbox.DefaultContext, Plots: true}}
	if diff := cmp.Diff(want, w.engine.begun); diff != "" {
		t.Error(diff)
	}
	w.signIn("bob")
	res, body := w.post(Path+"try", url.Values{"code": {"</textarea>" + script}, "language": {"bash"}})
	if res.StatusCode != 501 || strings.Contains(body, script) || !strings.Contains(body, "no bash here") || !strings.Contains(body, "take another") ||
		!strings.Contains(body, "&lt;/textarea&gt;") || !strings.Contains(body, `<option value="bash" selected>`) {
		t.Errorf("a refusal: %d\n%s", res.StatusCode, body)
	}
}
