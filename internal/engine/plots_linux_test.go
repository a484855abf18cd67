package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// plotted runs a shell program that finds the directory of plots in $plots, and
// returns the texts of its results, and how many were not kept.
func plotted(t *testing.T, e *Engine, program string, change func(*sandbox.RunRequest)) ([]string, int) {
	t.Helper()
	req := sandbox.RunRequest{Language: "sh", Code: "plots=${PYTHONPATH##*:}/shown; mkdir -p \"$plots\" && cd \"$plots\"\n" + program, Plots: true}
	if change != nil {
		change(&req)
	}
	r, err := e.Start(t.Context(), alice, req)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = e.Wait(t.Context(), alice, r.ID); err != nil || r.Verdict.Code != sandbox.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	res, err := e.Results(t.Context(), alice, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, r := range res.Results {
		texts = append(texts, string(r.Data["text/plain"]))
	}
	return texts, res.Omitted
}

func TestPlots(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	texts, omitted := plotted(t, e, `
for i in 2 1 3; do echo "{\"text/plain\": \"plot $i\"}" >$i.json; done
echo '{"text/plain": "half of' >4.json.tmp`, nil)
	if d := cmp.Diff([]string{`"plot 1"`, `"plot 2"`, `"plot 3"`}, texts); d != "" || omitted != 0 {
		t.Errorf("%d omitted, (-want +got):\n%s", omitted, d)
	}
	// A run that does not ask has no plots, nor has one whose backend is another.
	for name, change := range map[string]func(*sandbox.RunRequest){
		"not asked":       func(r *sandbox.RunRequest) { r.Plots = false },
		"another backend": func(r *sandbox.RunRequest) { r.Env = map[string]string{"MPLBACKEND": "agg"} },
	} {
		change := func(r *sandbox.RunRequest) {
			r.Code = `test "$MPLBACKEND" != module://glovebox_plots`
			change(r)
		}
		if texts, omitted := plotted(t, e, "", change); len(texts) != 0 || omitted != 0 {
			t.Errorf("%s: %v, %d omitted", name, texts, omitted)
		}
	}
}

// TestHostilePlots has a program put other things where plots are.
func TestHostilePlots(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	texts, omitted := plotted(t, e, `
echo '{"text/plain": "good", "no type": "x", "image/png": 5}' >1.json
echo 'no JSON' >2.json
echo '[1]' >3.json
mkfifo 4.json
ln -s 1.json 5.json
mkdir 6.json
head -c 17000000 /dev/zero >7.json
ln -s /dev/zero 8.json`, nil)
	if d := cmp.Diff([]string{`"good"`}, texts); d != "" || omitted != 7 {
		t.Errorf("%d omitted, (-want +got):\n%s", omitted, d)
	}

	texts, omitted = plotted(t, e, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo '{"text/plain": "x"}' >$((1000+i)).json; i=$((i+1)); done`, runlog.MaxResults+5), nil)
	if len(texts) != runlog.MaxResults || omitted != 5 {
		t.Errorf("%d results, %d omitted", len(texts), omitted)
	}

	// Large ones take no more than a run's room for results.
	texts, omitted = plotted(t, e, `
head -c 12000000 /dev/zero | tr '\0' x >x
for i in 1 2 3; do (printf '{"text/plain": "'; cat x; printf '"}') >$i.json; done; rm x`, nil)
	if len(texts) != 2 || omitted != 1 || !bytes.HasPrefix([]byte(texts[0]), []byte(`"xxx`)) {
		t.Errorf("%d results, %d omitted", len(texts), omitted)
	}
}
