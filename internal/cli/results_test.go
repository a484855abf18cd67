package cli

import (
	"fmt"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestChangesLine(t *testing.T) {
	var many []sandbox.FileChange
	for i := range 12 {
		many = append(many, sandbox.FileChange{Path: fmt.Sprintf("f%d", i), Change: sandbox.FileCreated})
	}
	for _, c := range []struct {
		of   *sandbox.Changes
		want string
	}{
		{nil, ""},
		{&sandbox.Changes{}, ""},
		{&sandbox.Changes{Created: 1, Modified: 1, Removed: 1, Files: []sandbox.FileChange{
			{Path: "result.csv", Change: sandbox.FileCreated}, {Path: "data.csv", Change: sandbox.FileModified}, {Path: "old.txt", Change: sandbox.FileRemoved},
		}}, "files: +result.csv ~data.csv -old.txt"},
		{&sandbox.Changes{Created: 22, Files: many}, "files: +f0 +f1 +f2 +f3 +f4 +f5 +f6 +f7 +f8 +f9 and 12 more"},
		{&sandbox.Changes{Created: 3, Files: []sandbox.FileChange{
			{Path: "a b", Change: sandbox.FileCreated}, {Path: "x\x1b[2J\n", Change: sandbox.FileCreated}, {Path: "übung", Change: sandbox.FileCreated},
		}}, `files: +"a b" +"x\x1b[2J\n" +übung`},
	} {
		if got := changesLine(c.of); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
