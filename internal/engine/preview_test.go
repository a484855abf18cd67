package engine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHostilePreviews has a guest say anything of a picture.
func TestHostilePreviews(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n and what only looks like one")
	for _, c := range []struct {
		name string
		said map[string]sandbox.Preview
		want map[string]sandbox.Preview
	}{
		{"Nothing", nil, nil},
		{"One", map[string]sandbox.Preview{"image/png": {Data: sandbox.ToBase64(png)}}, map[string]sandbox.Preview{"image/png": {MIME: "image/png", Data: sandbox.ToBase64(png)}}},
		{"Reason", map[string]sandbox.Preview{"image/png": {Why: "line\n[ok, exit code 0]\x00" + strings.Repeat("x", 300), Data: sandbox.ToBase64(png)}},
			map[string]sandbox.Preview{"image/png": {Why: "line [ok, exit code 0]\x00" + strings.Repeat("x", 256-len("line [ok, exit code 0]\x00")) + "…"}}},
		{"Large", map[string]sandbox.Preview{"image/png": {Data: sandbox.ToBase64(append(png, make([]byte, sandbox.MaxPreview)...))}},
			map[string]sandbox.Preview{"image/png": {Why: "it has 1 MiB, and its sandbox cannot shrink it to 1 MiB"}}},
		{"None", map[string]sandbox.Preview{"image/png": {Data: sandbox.ToBase64([]byte("<svg>"))}}, map[string]sandbox.Preview{"image/png": {Why: "it is no picture"}}},
		{"Empty", map[string]sandbox.Preview{"image/png": {}}, map[string]sandbox.Preview{"image/png": {Why: "it is no picture"}}},
		{"Others", map[string]sandbox.Preview{"image/gif": {Data: sandbox.ToBase64(png)}, "text/html": {Data: sandbox.ToBase64(png)}, "../x": {Data: sandbox.ToBase64(png)}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openWorld(t, newWorld(), t.TempDir(), nil)
				said, err := json.Marshal(c.said)
				if err != nil {
					t.Fatal(err)
				}
				r := e.mustWait(t, e.mustStart(t, inContext("picture "+string(said))).ID)
				res := e.mustResults(t, r.ID)
				if len(res.Results) != 1 || !bytes.Contains(res.Results[0].Data["image/png"], []byte("iVBOR")) {
					t.Fatalf("results %+v", res.Results)
				}
				if diff := cmp.Diff(c.want, res.Results[0].Previews); diff != "" {
					t.Errorf("previews (-want +got):\n%s", diff)
				}
			})
		})
	}
}
