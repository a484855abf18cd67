package dashboard

import (
	"encoding/json"
	"html"
	"html/template"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestHighlighted(t *testing.T) {
	for _, c := range []struct{ language, program, want string }{
		{"python", "def f(x):  # <b>\n    return \"a\\\"b\" + 12", `<span class="h-k">def</span> f(x):  <span class="h-c"># &lt;b&gt;</span>` + "\n" + `    <span class="h-k">return</span> <span class="h-s">&#34;a\&#34;b&#34;</span> + <span class="h-n">12</span>`},
		{"python", "'''a\nb''' or 1.5e3", `<span class="h-s">&#39;&#39;&#39;a</span>` + "\n" + `<span class="h-s">b&#39;&#39;&#39;</span> <span class="h-k">or</span> <span class="h-n">1.5e3</span>`},
		{"go", "/* a\n*/ x", `<span class="h-c">/* a</span>` + "\n" + `<span class="h-c">*/</span> x`},
		{"rust", "fn f<'a>(x: &'a str)", `<span class="h-k">fn</span> f&lt;&#39;a&gt;(x: &amp;&#39;a str)`},
		{"bash", "echo don't", `<span class="h-k">echo</span> don<span class="h-s">&#39;t</span>`},
		{"text", "if # 1", "if # 1"},
		{"text", "a\x1b]0;x\u202e", "a\u241b]0;x\ufffd"},
		{"python", "", ""},
	} {
		var lines []string
		for _, line := range highlighted(c.language, c.program) {
			lines = append(lines, string(line))
		}
		if diff := cmp.Diff(c.want, strings.Join(lines, "\n")); diff != "" {
			t.Errorf("%s %q:\n%s", c.language, c.program, diff)
		}
	}
	for _, l := range language.All() {
		if _, ok := syntaxes[l.Name]; !ok {
			t.Errorf("%s has no colours", l.Name)
		}
	}
}

var tags = regexp.MustCompile(`<span class="h-[kscn]">|</span>`)

// FuzzHighlighted checks that no text adds markup, and that no part of it is lost.
func FuzzHighlighted(f *testing.F) {
	f.Add("python", "x = '''")
	f.Add("c", "/*")
	f.Add("lua", "--[[ a ]] b \"c")
	f.Add("bash", "\"a\\")
	f.Fuzz(func(t *testing.T, name, program string) {
		var b strings.Builder
		for i, line := range highlighted(name, program) {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(string(line))
		}
		var want strings.Builder
		for i, line := range strings.Split(program, "\n") {
			if i > 0 {
				want.WriteByte('\n')
			}
			writeText(&want, []byte(line))
		}
		if got := tags.ReplaceAllString(b.String(), ""); !strings.Contains(program, "\xff") && html.UnescapeString(got) != html.UnescapeString(want.String()) {
			t.Errorf("%q became %q", program, got)
		}
	})
}

func TestTableOf(t *testing.T) {
	frame := `<div><style>th{}</style><table border="1" class="dataframe"><thead><tr style="x"><th></th><th>name</th><th>n</th></tr></thead>
<tbody><tr><th>0</th><td>a &lt;b&gt; <script>alert(1)</script></td><td>1.5</td></tr><tr><th>1</th><td><b>c</b></td><td>-2</td></tr></tbody></table></div>`
	got, ok := tableOf(frame)
	want := tableView{Head: []cell{{"", true, true}, {"name", true, false}, {"n", true, true}}, Rows: [][]cell{
		{{"0", true, true}, {"a <b>", false, false}, {"1.5", false, true}}, {{"1", true, true}, {"c", false, false}, {"-2", false, true}},
	}}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v\n%s", ok, diff)
	}
	for _, page := range []string{"", "<b>x</b>", "<table>", "<td>x", "<table></table>", "<table><tr></tr></table>"} {
		if got, ok := tableOf(page); ok {
			t.Errorf("%q: %+v", page, got)
		}
	}
	aligned, ok := tableOf("<table><tr><th>day<th>share<th>mixed<th>empty<tr><td>2026-11-24<td>+1,000.5 %<td>1<td><tr><td>2026-11-25<td>NaN<td>one<td>None")
	for i, want := range []bool{false, true, false, false} {
		if head := aligned.Head[i]; !ok || head.Number != want {
			t.Errorf("the column %s has numbers: %v", head.Text, head.Number)
		}
		for _, row := range aligned.Rows {
			if row[i].Number != want {
				t.Errorf("%s is not aligned with its column", row[i].Text)
			}
		}
	}
	large, ok := tableOf("<table>" + strings.Repeat("<tr>"+strings.Repeat("<td>x", 100), 600))
	if !ok || !large.Cut || len(large.Rows) != maxTableRows || len(large.Rows[0]) != maxTableCols {
		t.Errorf("a large table: %v, %d rows", ok, len(large.Rows))
	}
}

// TestRichResults shows tables as tables, and charts as data for the script.
func TestRichResults(t *testing.T) {
	w := newWorld(t, nil)
	w.engine.results = sandbox.Results{Results: []sandbox.Result{
		{Data: map[string]json.RawMessage{"text/html": quoted("<table><tr><th>a<tr><td>" + template.HTMLEscapeString(script) + "</table>")}},
		{Data: map[string]json.RawMessage{sandbox.MIMEChart: json.RawMessage(`{"type":"bar","title":"` + script + `"}`), "text/plain": quoted("a chart")}},
	}}
	w.signIn("alice")
	_, body := w.get(Path + "runs/" + theRun)
	for _, want := range []string{`<th scope="col" role="columnheader">a</th>`, `<td role="cell">&lt;script&gt;`, `data-chart="{&#34;type&#34;`, ">a chart</pre>"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, script) {
		t.Errorf("the page has markup:\n%s", body)
	}
}

// TestHighlightIsLinear: a line of quotes that do not end takes no more time than its
// length.
func TestHighlightIsLinear(t *testing.T) {
	began := time.Now()
	highlighted("python", strings.Repeat(`'\`, 64<<10))
	if took := time.Since(began); took > time.Second {
		t.Errorf("128 KiB of quotes took %v", took)
	}
}
