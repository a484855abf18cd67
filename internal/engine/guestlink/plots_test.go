package guestlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// oneFile is a guest with one file.
type oneFile struct {
	Guest
	r io.Reader
}

func (g oneFile) Read(context.Context, string, int64, int64, guestapi.FileOptions) (io.ReadCloser, int64, error) {
	return io.NopCloser(g.r), 0, nil
}

// members returns an object of n members.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestReadPlot(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       int // members; -1 for a broken figure
	}{
		{"figure", ` {"text/plain": "a", "application/json": {"b": [1]}} ` + "\n", 2},
		{"empty object", "{}", 0},
		{"most members", members(maxForms), maxForms},
		{"too many members", members(maxForms + 1), -1},
		{"one member, many times", "{" + strings.Repeat(`"a":1,`, maxForms) + `"a":1}`, -1},
		{"empty file", "", -1},
		{"null", "null", -1},
		{"text", `"a"`, -1},
		{"array", "[1]", -1},
		{"no JSON", "no JSON", -1},
		{"a name that is no text", "{1: 1}", -1},
		{"no value", `{"a"}`, -1},
		{"broken value", `{"a": [}`, -1},
		{"cut in a value", `{"a": "b`, -1},
		{"cut between members", `{"a": "b",`, -1},
		{"cut before the end", `{"a": "b"`, -1},
		{"two objects", "{}{}", -1},
		{"garbage after the object", "{} x", -1},
		{"too large", `{"a": "` + strings.Repeat("x", maxPlot) + `"}`, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := readPlot(t.Context(), oneFile{r: strings.NewReader(tt.text)}, "f", "user")
			if err != nil || (p.Data == nil) != (tt.want < 0) || p.Data != nil && len(p.Data) != tt.want {
				t.Errorf("%d members, %v; want %d", len(p.Data), err, tt.want)
			}
		})
	}
	p, err := readPlot(t.Context(), oneFile{r: strings.NewReader(`{"text/plain": "a" , "x": {"b":1}}`)}, "f", "user")
	if diff := cmp.Diff(map[string]json.RawMessage{"text/plain": json.RawMessage(`"a"`), "x": json.RawMessage(`{"b":1}`)}, p.Data); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	broken := errors.New("the connection broke")
	if _, err := readPlot(t.Context(), oneFile{r: io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(broken))}, "f", "user"); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

// TestReadPlotOfManyMembers bounds the memory for a file of many small members.
func TestReadPlotOfManyMembers(t *testing.T) {
	text := members(1_000_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if p, err := readPlot(t.Context(), oneFile{r: strings.NewReader(text)}, "f", "user"); p.Data != nil || err != nil {
		t.Errorf("%d members, %v", len(p.Data), err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated for a file of %d", n, len(text))
	}
}
