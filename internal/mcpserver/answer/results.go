package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These bound the results within an answer. The answer has URIs for the rest.
const (
	MaxText        = 32 << 10 // one text
	maxResultData  = 16 << 10 // one value of JSON
	maxAlternative = 1 << 10  // one text or value, if there is also plain text
	maxChartText   = 4 << 10  // a chart's data in the text for models
	MaxPictures    = 10
	maxPictureSize = 4 << 20 // all pictures
	maxForms       = 200     // entries of results
)

// A part is a result in the form for models, with its position in the output.
type part struct {
	stdout, stderr int64
	text           string
	unshown        []string      // lines of text: why pictures are not shown
	contents       []mcp.Content // pictures, and links to pictures that are too large
}

// resultURI returns the URI of one form of a result.
func resultURI(runID string, number int, mime string) string {
	return "run://" + runID + "/results/" + strconv.Itoa(number) + "/" + mime
}

// A presenter selects the parts of results that an answer includes.
type presenter struct {
	runID    string
	count    int // the interpreter's run count
	budget   int // remaining bytes of text and data
	most     int // bytes of one text
	pictures int // remaining number of pictures
	pixels   int // remaining bytes of pictures
	forms    []sandbox.ResultForm
	parts    []part
}

// presentResults selects the parts of a run's results that an answer includes.
func presentResults(run sandbox.Run, res sandbox.Results, budget int) ([]sandbox.ResultForm, []part) {
	p := presenter{runID: run.ID, budget: max(budget, sandbox.DefaultOutputBytes), most: min(budget, MaxText), pictures: MaxPictures, pixels: maxPictureSize}
	if run.Context != nil {
		p.count = run.Context.Count
	}
	for n, r := range res.Results {
		p.present(n, r)
	}
	return p.forms, p.parts
}

// present adds one result.
func (p *presenter) present(number int, r sandbox.Result) {
	out := part{stdout: r.Stdout, stderr: r.Stderr}
	_, hasText := r.Data[sandbox.MIMEText]
	for _, mime := range r.Types() {
		if len(p.forms) >= maxForms {
			break
		}
		f := sandbox.ResultForm{Number: number, MIME: mime, Main: r.Main, Late: r.Late}
		value := r.Data[mime]
		var text string
		isText := sandbox.IsPicture(mime) || json.Unmarshal(value, &text) == nil
		switch {
		case hasText && mime != sandbox.MIMEText && mime != sandbox.MIMEChart && len(value) > maxAlternative && !sandbox.IsPicture(mime):
			f.URI = resultURI(p.runID, number, mime)
		case sandbox.IsPicture(mime):
			f.URI = resultURI(p.runID, number, mime)
			content, why := p.picture(f, r)
			out.contents = append(out.contents, content)
			if why != "" {
				line := fmt.Sprintf("picture %d is not shown: %s", number, why)
				out.text += line + "\n"
				out.unshown = append(out.unshown, line)
			}
		case isText && !sandbox.IsJSON(mime) && mime != "application/pdf":
			if len(text) > p.most || len(text) > p.budget {
				f.URI = resultURI(p.runID, number, mime)
				if mime != sandbox.MIMEText {
					break
				}
				text = FirstRunes(text, min(p.most, max(p.budget, 256))) + "\n... (all of it: " + f.URI + ")"
			}
			p.budget = max(p.budget-len(text), 0)
			f.Text = &text
		case len(value) <= maxResultData && len(value) <= p.budget && sandbox.IsJSON(mime):
			p.budget -= len(value)
			f.Data = value
			if mime == sandbox.MIMEChart {
				f.Data = withoutNulls(value)
			}
		default:
			f.URI = resultURI(p.runID, number, mime)
		}
		p.forms = append(p.forms, f)
		out.text += p.read(f, text, r)
	}
	p.parts = append(p.parts, out)
}

// read returns the text for models of a form: the text of a value, or the data of
// a chart. For a form that has neither, it returns the MIME type and the URI or
// content.
func (p *presenter) read(f sandbox.ResultForm, text string, r sandbox.Result) string {
	_, hasText := r.Data[sandbox.MIMEText]
	switch {
	case f.MIME == sandbox.MIMEText:
		label := "display"
		if r.Main {
			label = fmt.Sprintf("Out[%d]", p.count)
		}
		if strings.Contains(text, "\n") {
			return label + ":\n" + strings.TrimSuffix(text, "\n") + "\n"
		}
		return label + ": " + text + "\n"
	case f.MIME == sandbox.MIMEChart && len(f.Data) > 0 && len(f.Data) <= maxChartText:
		return "chart: " + string(compact(f.Data)) + "\n"
	case sandbox.IsPicture(f.MIME), hasText && f.MIME != sandbox.MIMEChart:
		return ""
	case f.URI != "":
		return f.MIME + ": " + f.URI + "\n"
	case !hasText && f.Text != nil:
		return f.MIME + ":\n" + strings.TrimSuffix(*f.Text, "\n") + "\n"
	case !hasText:
		return f.MIME + ": " + string(compact(f.Data)) + "\n"
	}
	return ""
}

// picture returns the image to show, or a link to it and the reason why it is not
// shown. The server never decodes a picture: the sandbox made the preview, or the
// original is small enough. Only its size and first bytes are checked.
func (p *presenter) picture(f sandbox.ResultForm, r sandbox.Result) (content mcp.Content, why string) {
	link := &mcp.ResourceLink{URI: f.URI, Name: fmt.Sprintf("picture %d of %s", f.Number, p.runID), MIMEType: f.MIME}
	shown, ok := r.Previews[f.MIME]
	if !ok {
		shown = asItIs(f.MIME, r)
	}
	switch {
	case shown.Why != "":
		return link, shown.Why
	case p.pictures == 0:
		return link, fmt.Sprintf("%d are shown", MaxPictures)
	case shown.Data.Size() > int64(p.pixels):
		return link, sandbox.FormatBytes(maxPictureSize) + " of pictures are shown"
	}
	data, err := shown.Data.Decode()
	if err != nil {
		return link, noPicture(f.MIME)
	}
	p.pictures--
	p.pixels -= len(data)
	return &mcp.ImageContent{MIMEType: shown.MIME, Data: data}, ""
}

// asItIs returns a picture for which there is no preview. Either the original is
// small enough, or the sandbox makes no previews.
func asItIs(mime string, r sandbox.Result) sandbox.Preview {
	data, _ := r.Base64(mime)
	switch {
	case data.PictureType() != mime:
		return sandbox.Preview{Why: noPicture(mime)}
	case data.Size() > sandbox.MaxPreview:
		return sandbox.Preview{Why: fmt.Sprintf("it has %s, and its sandbox did not shrink it to %s",
			sandbox.FormatBytes(data.Size()), sandbox.FormatBytes(sandbox.MaxPreview))}
	}
	return sandbox.Preview{MIME: mime, Data: data}
}

func noPicture(mime string) string { return "it is no picture of the type " + mime }

// withoutNulls removes the members of objects that are null, at any depth. The null
// fields of a chart say that the plot has no such thing.
func withoutNulls(b json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return b
	}
	out, err := json.Marshal(dropNulls(v))
	if err != nil {
		return b
	}
	return out
}

func dropNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = dropNulls(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = dropNulls(v[i])
		}
	}
	return v
}

func compact(b json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return b
	}
	return out.Bytes()
}

// weave inserts results into the output at the positions where the program showed
// them. If the output is not complete and unchanged, the positions are unknown,
// and the results follow the output.
func weave(o sandbox.Output, parts []part) []mcp.Content {
	whole := o.Omitted == sandbox.Omitted{} && int64(len(o.Stdout)) == o.StdoutBytes && int64(len(o.Stderr)) == o.StderrBytes
	w := weaver{labels: o.Stderr != ""}
	var stdout, stderr int64
	for _, p := range parts {
		if to := min(p.stdout, int64(len(o.Stdout))); whole && to > stdout {
			w.output("stdout", o.Stdout[stdout:to])
			stdout = to
		}
		if to := min(p.stderr, int64(len(o.Stderr))); whole && to > stderr {
			w.output("stderr", o.Stderr[stderr:to])
			stderr = to
		}
		if !whole && stdout+stderr == 0 {
			w.output("stdout", o.Stdout)
			w.output("stderr", o.Stderr)
			stdout, stderr = int64(len(o.Stdout)), int64(len(o.Stderr))
		}
		w.text(p.text)
		w.add(p.contents...)
	}
	w.output("stdout", o.Stdout[stdout:])
	w.output("stderr", o.Stderr[stderr:])
	return w.contents
}

// A weaver joins adjacent texts, to make as few contents as possible.
type weaver struct {
	labels   bool   // there are two streams
	stream   string // the stream of the last output, if nothing followed it
	contents []mcp.Content
}

// output adds output of a stream. It puts the stream's name above the output if
// there are two streams. It also does so for the first content, because the name
// marks the end of the server's own text.
func (w *weaver) output(stream, text string) {
	if text == "" {
		return
	}
	if w.labels && w.stream != stream || len(w.contents) == 0 {
		text = stream + ":\n" + text
	}
	w.text(text)
	w.stream = stream
}

func (w *weaver) text(text string) {
	w.stream = ""
	if text == "" {
		return
	}
	if n := len(w.contents); n > 0 {
		if last, ok := w.contents[n-1].(*mcp.TextContent); ok {
			if !strings.HasSuffix(last.Text, "\n") {
				last.Text += "\n"
			}
			last.Text += text
			return
		}
	}
	w.contents = append(w.contents, &mcp.TextContent{Text: text})
}

// join adds the contents of another weaver.
func (w *weaver) join(contents []mcp.Content) {
	for _, c := range contents {
		if text, ok := c.(*mcp.TextContent); ok {
			w.text(text.Text)
		} else {
			w.add(c)
		}
	}
}

func (w *weaver) add(contents ...mcp.Content) {
	if len(contents) > 0 {
		w.stream = ""
		w.contents = append(w.contents, contents...)
	}
}
