package guestapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDiffReply decodes answers of a hostile guest.
func TestDiffReply(t *testing.T) {
	many := func(n int, value string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
	}
	for what, text := range map[string]string{
		"names":             `{"files":` + many(sandbox.MaxDiffNames+1, "{}") + `}`,
		"left out files":    `{"left_out":` + many(sandbox.MaxDiffNames+1, "{}") + `}`,
		"text in no coding": `{"bytes":"\u0000"}`,
	} {
		if err := json.Unmarshal([]byte(text), new(DiffResponse)); err == nil {
			t.Errorf("too many %s are accepted", what)
		}
	}
	for what, text := range map[string]string{
		"names":  `{"files":` + many(MaxChangesNamed+1, "{}") + `}`,
		"hashes": `{"hashes":` + many(MaxChangesNamed+1, `""`) + `}`,
	} {
		if err := json.Unmarshal([]byte(text), new(ChangesResponse)); err == nil {
			t.Errorf("too many %s of a run are accepted", what)
		}
	}
	var d DiffResponse
	err := json.Unmarshal([]byte(`{"files":[{"path":"a","size":1,"change":"created"}],"created":1,"path":"/data","bytes":"YQ==","not_shown":2,"next":"Yg==","incomplete":true,"reason":"r","at":"/data/a"}`), &d)
	if err != nil || len(d.Files) != 1 || d.Created != 1 || d.Diff.Path != "/data" || string(d.Bytes) != "a" || string(d.Next) != "b" || d.NotShown != 2 || d.At != "/data/a" || !d.Incomplete {
		t.Errorf("%+v, %v", d, err)
	}
}
