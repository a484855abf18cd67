package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// chartProgram runs in the sandbox and draws a chart from the JSON on its
// standard input.
//
//go:embed charts.py
var chartProgram string

const (
	rowsProperty = `"data":{"title":"Data","type":"array","items":{"type":"object","additionalProperties":true}}`

	lineInput = `{"type":"object","properties":{` + sessionProperty + `,` + rowsProperty + `,` +
		`"x_key":{"title":"X Key","type":"string"},` +
		`"y_keys":{"title":"Y Keys","type":"array","items":{"type":"string"}},` +
		`"title":{"title":"Title","type":"string","default":"Line Chart"},` + labelProperties + `,` + saveProperty +
		`},"required":["session_id","data","x_key","y_keys"]}`

	barInput = `{"type":"object","properties":{` + sessionProperty + `,` + rowsProperty + `,` +
		`"category_key":{"title":"Category Key","type":"string"},` +
		`"value_keys":{"title":"Value Keys","type":"array","items":{"type":"string"}},` +
		`"title":{"title":"Title","type":"string","default":"Bar Chart"},` + labelProperties + `,` + saveProperty + `,` +
		`"orientation":{"title":"Orientation","type":"string","default":"vertical"}` +
		`},"required":["session_id","data","category_key","value_keys"]}`

	scatterInput = `{"type":"object","properties":{` + sessionProperty + `,` + rowsProperty + `,` +
		`"x_key":{"title":"X Key","type":"string"},"y_key":{"title":"Y Key","type":"string"},` +
		`"color_key":` + optionalText + `,"size_key":` + optionalText + `,` +
		`"title":{"title":"Title","type":"string","default":"Scatter Plot"},` + labelProperties + `,` + saveProperty +
		`},"required":["session_id","data","x_key","y_key"]}`

	interactiveInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"chart_type":{"title":"Chart Type","type":"string"},` + rowsProperty + `,` +
		`"x_key":{"title":"X Key","type":"string"},` +
		`"y_keys":{"title":"Y Keys","type":"array","items":{"type":"string"}},` +
		`"title":{"title":"Title","type":"string","default":"Interactive Chart"},` + saveProperty +
		`},"required":["session_id","chart_type","data","x_key","y_keys"]}`

	heatmapInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"data":{"title":"Data","type":"array","items":{"type":"array","items":{"type":"number"}}},` +
		`"row_labels":{"title":"Row Labels","type":"array","items":{"type":"string"},"default":null},` +
		`"col_labels":{"title":"Col Labels","type":"array","items":{"type":"string"},"default":null},` +
		`"title":{"title":"Title","type":"string","default":"Heatmap"},` + saveProperty + `,` +
		`"cmap":{"title":"Cmap","type":"string","default":"viridis"}` +
		`},"required":["session_id","data"]}`

	optionalText    = `{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}`
	labelProperties = `"x_label":` + optionalText + `,"y_label":` + optionalText
	saveProperty    = `"save_path":` + optionalText
)

func (s *server) chartTools() []profile.Tool {
	chart := func(name, description, input string, run func(context.Context, profile.Call, chartArgs) (profile.Result, error)) profile.Tool {
		return profile.Tool{
			Name: name, Description: description, Input: input,
			Scope: auth.ScopeRun, Run: profile.Typed(input, run),
		}
	}
	return []profile.Tool{
		chart("generate_line_chart", "Draw lines over the rows of data: one for each of y_keys, over x_key.", lineInput,
			s.drawing("line", "Line Chart", "Line chart generated successfully")),
		chart("generate_bar_chart", "Draw bars for the rows of data: one for each of value_keys, in groups by category_key. orientation is vertical or horizontal.", barInput,
			s.drawing("bar", "Bar Chart", "Bar chart generated successfully")),
		chart("generate_scatter_plot", "Draw a point for each row of data, coloured by color_key and sized by size_key.", scatterInput,
			s.drawing("scatter", "Scatter Plot", "Scatter plot generated successfully")),
		chart("generate_interactive_chart", "Make a web page with an interactive chart: chart_type is line, bar, scatter or area.", interactiveInput,
			s.interactive),
		chart("generate_heatmap", "Draw a table of numbers as colours.", heatmapInput,
			s.drawing("heatmap", "Heatmap", "Heatmap generated successfully")),
	}
}

// chartArgs are the arguments of all chart tools; each tool uses some of them.
type chartArgs struct {
	session
	Data        []json.RawMessage `json:"data"`
	ChartType   string            `json:"chart_type"`
	XKey        string            `json:"x_key"`
	YKey        string            `json:"y_key"`
	YKeys       []string          `json:"y_keys"`
	CategoryKey string            `json:"category_key"`
	ValueKeys   []string          `json:"value_keys"`
	ColorKey    string            `json:"color_key"`
	SizeKey     string            `json:"size_key"`
	RowLabels   []string          `json:"row_labels"`
	ColLabels   []string          `json:"col_labels"`
	Title       *string           `json:"title"`
	XLabel      string            `json:"x_label"`
	YLabel      string            `json:"y_label"`
	SavePath    string            `json:"save_path"`
	Orientation string            `json:"orientation"`
	ColorMap    string            `json:"cmap"`
}

// fill sets the defaults of missing arguments.
func (a *chartArgs) fill(name, title, extension string) {
	set := func(v *string, value string) {
		if *v == "" {
			*v = value
		}
	}
	if a.Title == nil {
		a.Title = &title
	}
	set(&a.XLabel, a.XKey+a.CategoryKey)
	set(&a.YLabel, a.YKey)
	set(&a.YLabel, "Value")
	set(&a.ColorMap, "viridis")
	set(&a.SavePath, "/tmp/"+name+"_"+strings.ToLower(rand.Text())+extension)
}

// files are the original's file names for each kind of chart.
var files = map[string]string{"line": "line_chart", "bar": "bar_chart", "scatter": "scatter_plot", "heatmap": "heatmap"}

// drawing returns the handler of a tool that draws one kind of chart.
func (s *server) drawing(kind, title, message string) func(context.Context, profile.Call, chartArgs) (profile.Result, error) {
	return func(ctx context.Context, c profile.Call, in chartArgs) (profile.Result, error) {
		id, err := s.find(ctx, c, in.ID)
		if err != nil {
			return profile.Result{}, err
		}
		in.fill(files[kind], title, ".png")
		spec, err := json.Marshal(struct {
			chartArgs
			Kind string `json:"kind"`
		}{in, kind})
		if err != nil {
			return profile.Result{}, fmt.Errorf("encode chart: %w", err)
		}
		run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: id, Code: chartProgram, Language: language.Python, Stdin: spec})
		if err != nil {
			return profile.Result{}, err
		}
		if run.Verdict.Code != sandbox.OK {
			return s.undrawn(ctx, c, run)
		}
		data, err := s.contents(ctx, c, id, in.SavePath)
		if err != nil {
			return profile.Result{}, err
		}
		r, err := profile.JSON(struct {
			ChartType string `json:"chart_type"`
			Title     string `json:"title"`
			FilePath  string `json:"file_path"`
			Image     string `json:"base64_image"`
			Message   string `json:"message"`
		}{kind, *in.Title, in.SavePath, base64.StdEncoding.EncodeToString(data), message})
		r.Images = []profile.Image{{MIMEType: "image/png", Data: data}}
		return r, err
	}
}

// undrawn returns the reason why there is no chart: the last line of stderr, or
// the verdict.
func (s *server) undrawn(ctx context.Context, c profile.Call, run sandbox.Run) (profile.Result, error) {
	out, err := s.opts.Engine.Output(ctx, c.Principal, run.ID, 4096)
	if err != nil {
		return profile.Result{}, err
	}
	why := strings.TrimSpace(out.Stderr)
	why = why[strings.LastIndexByte(why, '\n')+1:]
	if run.Verdict.Code != sandbox.Failed || why == "" {
		why = fmt.Sprintf("%s: %s", run.Verdict.Code, run.Verdict.Cause)
	}
	return failed("Error generating chart: " + why)
}

// plotly is the URL of the library for interactive charts. The browser that shows
// the page loads it.
const plotly = "https://cdn.plot.ly/plotly-2.35.2.min.js"

// interactive makes the page in the server. The page is data and a line of
// script, so the sandbox needs no packages for it.
func (s *server) interactive(ctx context.Context, c profile.Call, in chartArgs) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	in.fill("interactive_chart", "Interactive Chart", ".html")
	page, err := in.page()
	if err != nil {
		return profile.Result{}, err
	}
	if err := s.opts.Engine.WriteFile(ctx, c.Principal, id, in.SavePath, strings.NewReader(page), false); err != nil {
		return profile.Result{}, err
	}
	return profile.JSON(struct {
		ChartType   string `json:"chart_type"`
		Interactive bool   `json:"interactive"`
		Title       string `json:"title"`
		FilePath    string `json:"file_path"`
		HTML        string `json:"html_content"`
		Message     string `json:"message"`
	}{in.ChartType, true, *in.Title, in.SavePath, page, "Interactive chart generated successfully"})
}

// column returns the values of a key in all rows of data.
func (a *chartArgs) column(key string) ([]json.RawMessage, error) {
	values := make([]json.RawMessage, len(a.Data))
	for i, row := range a.Data {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(row, &fields); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "data: row %d is not an object", i)
		}
		value, ok := fields[key]
		if !ok {
			return nil, sandbox.Errorf(sandbox.Invalid, "data: row %d has no %q", i, key)
		}
		values[i] = value
	}
	return values, nil
}

func (a *chartArgs) page() (string, error) {
	xs, err := a.column(a.XKey)
	if err != nil {
		return "", err
	}
	type trace map[string]any
	traces := []trace{}
	for _, key := range a.YKeys {
		ys, err := a.column(key)
		if err != nil {
			return "", err
		}
		t := trace{"x": xs, "y": ys, "name": key, "type": "scatter", "mode": "lines+markers"}
		switch a.ChartType {
		case "bar":
			t = trace{"x": xs, "y": ys, "name": key, "type": "bar"}
		case "scatter":
			t["mode"], t["marker"] = "markers", trace{"size": 10}
		case "area":
			t["mode"], t["fill"] = "lines", "tozeroy"
		}
		traces = append(traces, t)
	}
	layout := trace{
		"title": trace{"text": *a.Title}, "hovermode": "closest", "template": "plotly_white",
		"xaxis": trace{"title": trace{"text": a.XKey}, "rangeslider": trace{"visible": true}},
		"yaxis": trace{"title": trace{"text": "Value"}},
	}
	// json.Marshal escapes <, > and &, so the data cannot close the script
	// element.
	data, err := json.Marshal([]any{traces, layout})
	if err != nil {
		return "", fmt.Errorf("encode chart: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>%s</title><script src=%q></script></head>\n"+
		"<body><div id=\"chart\" style=\"height:90vh\"></div>\n<script>Plotly.newPlot(\"chart\", ...%s)</script></body>\n</html>\n",
		html.EscapeString(*a.Title), plotly, data)
	return b.String(), nil
}
