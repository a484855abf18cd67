package answer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// painted returns a picture of one colour as PNG.
func painted(t *testing.T, w, h int) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	draw.Draw(m, m.Bounds(), image.NewUniform(color.Gray{0x80}), image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func quoted(data []byte) string { return strconv.Quote(base64.StdEncoding.EncodeToString(data)) }

// TestPictures chooses what is shown of a picture, with what its sandbox made of
// it and without, as sandboxes of earlier versions and of other makers are.
func TestPictures(t *testing.T) {
	small := painted(t, 3, 2)
	// Larger than is passed on, and a bomb for a decoder: nothing here is one.
	bomb := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x19\x00\x00\x00\x19\x64\x10\x06\x00\x00\x00"), make([]byte, sandbox.MaxPreview)...)
	for _, c := range []struct {
		name, mime string
		data       []byte
		preview    *sandbox.Preview
		want       string // the type that is shown
		why        string
	}{
		{"AsItIs", "image/png", small, nil, "image/png", ""},
		{"Unshrunk", "image/png", bomb[:sandbox.MaxPreview], nil, "image/png", ""},
		{"TooLarge", "image/png", bomb, nil, "", "it has 1 MiB, and its sandbox did not shrink it to 1 MiB"},
		{"FarTooLarge", "image/png", append(bomb, make([]byte, 8<<20)...), nil, "", "it has 9 MiB, and its sandbox did not"},
		{"Another", "image/jpeg", small, nil, "", "it is no picture of the type image/jpeg"},
		{"None", "image/png", []byte("x"), nil, "", "it is no picture of the type image/png"},
		{"Forged", "image/png", small, &sandbox.Preview{MIME: "image/png", Data: sandbox.ToBase64(small) + "!"}, "", "it is no picture of the type image/png"},
		{"Shrunk", "image/png", bomb, &sandbox.Preview{MIME: "image/jpeg", Data: sandbox.ToBase64([]byte("\xff\xd8\xff"))}, "image/jpeg", ""},
		{"Reason", "image/png", small, &sandbox.Preview{Why: "it is broken"}, "", "it is broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sandbox.Result{Data: map[string]json.RawMessage{c.mime: json.RawMessage(quoted(c.data))}}
			if c.preview != nil {
				r.Previews = map[string]sandbox.Preview{c.mime: *c.preview}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			forms, parts := presentResults(sandbox.Run{ID: "run_x"}, sandbox.Results{Results: []sandbox.Result{r}}, 1000)
			runtime.ReadMemStats(&after)
			if len(parts) != 1 || len(parts[0].contents) != 1 || forms[0].URI != "run://run_x/results/0/"+c.mime {
				t.Fatalf("%+v, %+v", forms, parts)
			}
			shown, ok := parts[0].contents[0].(*mcp.ImageContent)
			if ok != (c.want != "") || ok && shown.MIMEType != c.want {
				t.Errorf("%T, %+v", parts[0].contents[0], shown)
			}
			if want := "picture 0 is not shown: " + c.why; c.why != "" && !strings.HasPrefix(parts[0].text, want) || c.why == "" && parts[0].text != "" {
				t.Errorf("%q, want %q", parts[0].text, want)
			}
			// The text once, and once decoded.
			if got := after.TotalAlloc - before.TotalAlloc; got > 3*uint64(len(c.data))+64<<10 {
				t.Errorf("%d bytes to show %d", got, len(c.data))
			}
		})
	}
}

func TestChangedFiles(t *testing.T) {
	run := sandbox.Run{ID: sandbox.NewRunID(), SandboxID: sandbox.NewID(), Status: sandbox.RunFinished, Changes: &sandbox.Changes{
		Created: 30, Removed: 1,
	}}
	for i := range 30 {
		run.Changes.Files = append(run.Changes.Files, sandbox.FileChange{Path: "d/ü " + string(rune('a'+i)), Size: 5, Change: sandbox.FileCreated})
	}
	run.Changes.Files = append(run.Changes.Files, sandbox.FileChange{Path: "gone", Change: sandbox.FileRemoved})
	res := NewRun(run, sandbox.Output{}, time.Now())
	png := []byte("\x89PNG\r\n\x1a\n")
	previews := map[string]sandbox.Preview{"d/ü a": {MIME: "image/png", Data: sandbox.ToBase64(png)}, "d/ü b": {Why: "it is broken"}}
	for i := 2; i < maxFilePictures+2; i++ { // one more than are shown
		previews["d/ü "+string(rune('a'+i))] = sandbox.Preview{MIME: "image/jpeg", Data: sandbox.ToBase64(png)}
	}
	res.AddChanges(run, previews, func(name string) string {
		return "https://box.example/files/id" + (&url.URL{Path: "/" + name}).EscapedPath() + "?sig"
	})
	var pictures []string
	res.shown = slices.DeleteFunc(res.shown, func(c mcp.Content) bool {
		p, ok := c.(*mcp.ImageContent)
		if ok {
			pictures = append(pictures, p.MIMEType)
		}
		return ok
	})
	if want := []string{"image/png", "image/jpeg", "image/jpeg", "image/jpeg"}; !slices.Equal(pictures, want) || !slices.Equal(res.unshown, []string{"d/ü b is not shown: it is broken"}) {
		t.Errorf("pictures %q; %q", pictures, res.unshown)
	}
	if len(res.Files) != 31 || res.Files[0].URL != "https://box.example/files/id/d/%C3%BC%20a?sig" || res.Files[30].URL != "" {
		t.Errorf("files: %+v", res.Files)
	}
	if want := maxFileLinks - len(pictures); len(res.shown) != want {
		t.Errorf("%d links, want %d", len(res.shown), want)
	}
	answer, err := res.Render()
	if err != nil {
		t.Fatal(err)
	}
	if text := answer.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, "files: 30 created, 0 modified, 1 removed: +d/ü a") || !strings.Contains(text, "and 21 more\nd/ü b is not shown") {
		t.Errorf("text: %s", text)
	}
}
