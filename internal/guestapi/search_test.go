package guestapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSearchReply decodes replies of guests that lie about a search. Few bytes must
// not become many lines.
func TestSearchReply(t *testing.T) {
	line, file := `{"line":1}`, `{"path":"/a","lines":[]}`
	for _, tt := range []struct {
		what, reply string
		ok          bool
	}{
		{"as many lines as can be", `{"files":[{"path":"/a","lines":[` + strings.Repeat(line+",", maxLines-1) + line + `]}]}`, true},
		{"one line more", `{"files":[{"path":"/a","lines":[` + strings.Repeat(line+",", maxLines) + line + `]}]}`, false},
		{"more files than matches", `{"files":[` + strings.Repeat(file+",", sandbox.MaxMatches) + file + `]}`, false},
		{"too many bytes", `{"files":[{"path":"` + strings.Repeat("a", maxFound) + `"}]}`, false},
	} {
		var f found
		if err := json.Unmarshal([]byte(tt.reply), &f); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
