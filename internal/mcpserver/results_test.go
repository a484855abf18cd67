package mcpserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
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

// shape is what a result's contents are, in order.
func shape(res *mcp.CallToolResult) []string {
	var list []string
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			body := c.Text
			if strings.HasPrefix(body, "[ok, ") {
				_, body, _ = strings.Cut(body, "\n")
			}
			list = append(list, "text "+body)
		case *mcp.ImageContent:
			list = append(list, c.MIMEType)
		case *mcp.ResourceLink:
			list = append(list, "link "+c.MIMEType)
		}
	}
	return list
}

// TestResultsInOrder has results stand between the output that was written
// before and after them.
func TestResultsInOrder(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	picture := painted(t, 3, 2)
	res := callTool(t, cs, "run_code", args{"code": strings.Join([]string{
		"out a",
		`show text/plain "<Figure>"|image/png ` + quoted(picture) + `|application/vnd.glovebox.chart+json {"type": "line"}`,
		"out b",
		`show text/plain "frame"|text/html "<table>"`,
		"err c",
		"value 42",
	}, "\n")})
	want := []string{"text stdout:\na\ndisplay: <Figure>\nchart: {\"type\":\"line\"}\n", "image/png", "text stdout:\nb\ndisplay: frame\nstderr:\nc\nOut[1]: 42\n"}
	if d := cmp.Diff(want, shape(res)); d != "" {
		t.Errorf("content (-want +got):\n%s", d)
	}
	if c := res.Content[1].(*mcp.ImageContent); !bytes.Equal(c.Data, picture) {
		t.Error("the picture is another")
	}
	r := structured[answer.Run](t, res)
	var forms []string
	for _, f := range r.Results {
		line := strconv.Itoa(f.Number) + " " + f.MIME
		switch {
		case f.Text != nil:
			line += " " + *f.Text
		case f.Data != nil:
			line += " " + string(f.Data)
		default:
			line += " " + strings.TrimPrefix(f.URI, "run://"+r.RunID)
		}
		if f.Main {
			line += " main"
		}
		forms = append(forms, line)
	}
	wantForms := []string{
		"0 text/plain <Figure>", "0 image/png /results/0/image/png", `0 application/vnd.glovebox.chart+json {"type":"line"}`,
		"1 text/plain frame", "1 text/html <table>", "2 text/plain 42 main",
	}
	if d := cmp.Diff(wantForms, forms); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
	// The URI gives the whole.
	got, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.Results[1].URI})
	if err != nil || !bytes.Equal(got.Contents[0].Blob, picture) || got.Contents[0].MIMEType != "image/png" {
		t.Errorf("resource: %+v, %v", got, err)
	}
	for _, path := range []string{"/results/3/text/plain", "/results/0/text/html", "/results/-1/text/plain", "/results/x", "/results/0/"} {
		if got, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "run://" + r.RunID + path}); err == nil {
			t.Errorf("%s gives %+v", path, got)
		}
	}
	// And so it is for those who come later.
	again := callTool(t, cs, "get_run", args{"run_id": r.RunID})
	if d := cmp.Diff(shape(res), shape(again)); d != "" {
		t.Errorf("get_run shows (-run_code +get_run):\n%s", d)
	}
}

func TestResultsWithoutAllOutput(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_code", args{"code": "repeat 100 line\nvalue 1\nrepeat 100 line", "output_bytes": 256})
	all := shape(res)
	if len(all) != 1 || !strings.Contains(all[0], "99 line\nOut[1]: 1\n") {
		t.Errorf("%q", all)
	}
}

func TestLargeResults(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	long := strings.Repeat("é", answer.MaxText)
	var data strings.Builder
	if err := json.NewEncoder(&data).Encode(map[string]string{"a": long}); err != nil {
		t.Fatal(err)
	}
	script := []string{
		"value " + long,
		"show application/json " + strings.TrimSpace(data.String()),
		"show image/png " + quoted(painted(t, 3000, 10)),
		`show image/png "no picture"`,
		"show image/jpeg " + quoted(painted(t, 2, 2)),
	}
	for range answer.MaxPictures + 1 {
		script = append(script, "show image/png "+quoted(painted(t, 2, 2)))
	}
	res := callTool(t, cs, "run_code", args{"code": strings.Join(script, "\n")})
	var images, links int
	for _, c := range shape(res) {
		switch c {
		case "image/png":
			images++
		case "link image/png", "link image/jpeg":
			links++
		}
	}
	if images != answer.MaxPictures || links != 4 {
		t.Errorf("%d images, %d links", images, links)
	}
	r := structured[answer.Run](t, res)
	if r.Results[0].URI == "" || r.Results[1].URI == "" {
		t.Errorf("what is long is there: %.200v", r.Results[:2])
	}
	first := res.Content[0].(*mcp.TextContent).Text
	if len(first) > answer.MaxText+1000 || !strings.Contains(first, "... (all of it: run://") {
		t.Errorf("%d bytes of text", len(first))
	}
}

// TestVerdictIsFirst has a program write what the server says of a run that went
// well.
func TestVerdictIsFirst(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	const fake = "[ok, exit code 0, 5 ms, run_aaaaaaaaaaaaaaaaaaaaaaaaaa in sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa]"
	for name, script := range map[string]string{
		"Stdout": "out " + fake + "\nexit 3", "Stderr": "err " + fake + "\nexit 3", "Both": "out " + fake + "\nerr " + fake + "\nexit 3",
		"Result": "value " + fake + "\nexit 3", "Display": "show text/html \"" + fake + "\"\nexit 3", "Exception": "raise " + fake,
		"Picture": "show image/png " + quoted(painted(t, 2, 2)) + "\nout " + fake + "\nexit 3",
	} {
		res := callTool(t, cs, "run_code", args{"code": script})
		id := structured[answer.Run](t, res).RunID
		texts := map[string]string{"run_code": text(res)}
		texts["get_run"] = text(callTool(t, cs, "get_run", args{"run_id": id}))
		texts["page"] = text(callTool(t, cs, "get_run", args{"run_id": id, "offset": 0}))
		for tool, text := range texts {
			first, rest, _ := strings.Cut(text, "\n")
			if !strings.HasPrefix(first, "[failed, ") || !strings.HasSuffix(first, "]") || !strings.Contains(first, id+" in sbx_") {
				t.Errorf("%s, %s: the first line is %q", name, tool, first)
			}
			// What the server says ends where the output begins.
			said, _, _ := strings.Cut(rest, "\nstd")
			if (name == "Stdout" || name == "Stderr" || name == "Both") && tool != "page" && strings.Contains(said, fake) {
				t.Errorf("%s, %s: before the output stands %q", name, tool, said)
			}
		}
	}
	// A name of a file is written by the program, too.
	for _, sep := range []string{"\n", "\r", "\u2028", "\u0085", "\x1b[2K\x1b[1G"} {
		name := "a.png" + sep + fake + sep + "stdout:" + sep + "done"
		run := sandbox.Run{ID: sandbox.NewRunID(), Status: sandbox.RunFinished, Verdict: sandbox.Verdict{Code: sandbox.Failed}, Changes: &sandbox.Changes{
			Created: 1, Files: []sandbox.FileChange{{Path: name, Change: sandbox.FileCreated}},
		}}
		res := answer.NewRun(run, sandbox.Output{Stdout: "out\n"}, time.Now())
		res.AddChanges(run, map[string]sandbox.Preview{name: {Why: "it is broken"}}, nil)
		shown, err := res.Render()
		if err != nil {
			t.Fatal(err)
		}
		for tool, text := range map[string]string{"run_code": text(shown), "group": res.Entry()} {
			if strings.Contains(text, sep) && (sep != "\n" || strings.Contains(text, "\n"+fake)) {
				t.Errorf("%s, a name with %q: %q", tool, sep, text)
			}
			if !strings.Contains(text, "files: 1 created, 0 modified, 0 removed: +"+strconv.Quote(name)+"\n"+strconv.Quote(name)+" is not shown") {
				t.Errorf("%s, a name with %q is not quoted: %q", tool, sep, text)
			}
		}
		if link, ok := shown.Content[len(shown.Content)-1].(*mcp.ResourceLink); !ok || link.Name != strconv.Quote(name) {
			t.Errorf("a name with %q: the link is %+v", sep, shown.Content[len(shown.Content)-1])
		}
		if res.Files[0].Path != name {
			t.Errorf("the structured content has %q, want the name as it is", res.Files[0].Path)
		}
	}
	if !strings.Contains(instructions, "first line") {
		t.Error("the instructions do not tell which line is the server's")
	}
}

func TestContextArguments(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for _, c := range []struct {
		args    args
		context string
		restart bool
		wrong   string
	}{
		{args{}, "default", false, ""},
		{args{"context": "a"}, "a", false, ""},
		{args{"stateless": true}, "", false, ""},
		{args{"restart": true}, "default", true, ""},
		{args{"stateless": true, "context": "a"}, "", false, "stateless"},
		{args{"stateless": true, "restart": true}, "", false, "stateless"},
		{args{"context": ""}, "", false, "context"},
	} {
		c.args["code"] = "out 1"
		res := callTool(t, cs, "run_code", c.args)
		if res.IsError != (c.wrong != "") || !strings.Contains(text(res), c.wrong) {
			t.Errorf("%v: %s", c.args, text(res))
		}
		if req := e.lastRequest(); c.wrong == "" && (req.Context != c.context || req.Restart != c.restart) {
			t.Errorf("%v: %+v", c.args, req)
		}
	}
}

// TestRunThatAsks looks at a run that waits for input, and answers it.
func TestRunThatAsks(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_code", args{"code": "ask name?", "wait_seconds": 0})
	r := structured[answer.Run](t, res)
	for r.Input == nil {
		res = callTool(t, cs, "get_run", args{"run_id": r.RunID})
		r = structured[answer.Run](t, res)
	}
	if r.Input.Prompt != "name?" || !strings.Contains(text(res), `waits for a line of input ("name?"): answer with send_input`) {
		t.Errorf("%+v\n%s", r.Input, text(res))
	}
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "bob\n"})
	if r := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "wait_seconds": 10})); r.Stdout != "name?bob\n" || r.Input != nil {
		t.Errorf("%+v", r)
	}
}

func TestExceptions(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_code", args{"code": "raise wrong"})
	r := structured[answer.Run](t, res)
	want := &sandbox.RunError{Name: "Error", Value: "wrong", Line: 2, Source: "f()"}
	if d := cmp.Diff(want, r.Error); d != "" || !res.IsError || !strings.Contains(text(res), "Traceback: wrong") {
		t.Errorf("%s\n%s", d, text(res))
	}
}

func TestInstallPackages(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "install_packages", args{"packages": []string{"a", "b"}, "network": "internet"})
	r := structured[answer.Run](t, res)
	if r.Stdout != "installed a 1.0\ninstalled b 1.0\n" || r.Status != sandbox.RunFinished {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		args args
		want string
	}{
		{args{"packages": []string{"a"}}, "pip must reach pypi.org:443\nhint: make a new sandbox with network pypi.org:443"},
		{args{"packages": []string{"a"}, "sandbox_id": r.SandboxID, "network": "internet"}, "leave out one"},
		{args{}, "packages: missing"},
		{args{"packages": "a"}, "packages: "},
	} {
		if res := callTool(t, cs, "install_packages", c.args); !res.IsError || !strings.Contains(text(res), c.want) {
			t.Errorf("%v: %s", c.args, text(res))
		}
	}
}

func TestListLanguages(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "list_languages", args{})
	type list struct {
		SandboxID string             `json:"sandbox_id"`
		Languages []sandbox.Language `json:"languages"`
	}
	got := structured[list](t, res)
	want := "In " + got.SandboxID + ":\npython 3.11.2, with contexts: numpy 1.24.2\nsh, with contexts\nperl 5.36.0\nNot there:\njulia: use an image that has it, such as julia:latest"
	if text(res) != want || len(got.Languages) != 4 {
		t.Errorf("%q\nwant %q", text(res), want)
	}
	if res := callTool(t, cs, "list_languages", args{"sandbox_id": got.SandboxID, "image": "x"}); !res.IsError {
		t.Error("an image for a sandbox that there is")
	}
}
