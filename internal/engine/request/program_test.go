package request

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestProgram(t *testing.T) {
	long := strings.Repeat("é", maxProgram)
	for name, c := range map[string]struct {
		req  sandbox.RunRequest
		want string
		size int64
	}{
		"Code":     {sandbox.RunRequest{Code: "print(1)\n", Language: "python"}, "print(1)\n", 9},
		"Commands": {sandbox.RunRequest{Commands: []string{"cd /", "ls -l"}}, "cd /\nls -l", 10},
		"Argv":     {sandbox.RunRequest{Argv: []string{"printf", "%s", "it's", "", "a b"}}, `printf %s 'it'\''s' '' 'a b'`, 28},
		"Long":     {sandbox.RunRequest{Code: "x" + long}, "x" + long[:maxProgram-2], int64(len(long)) + 1},
	} {
		if got, size := Program(c.req); got != c.want || size != c.size {
			t.Errorf("%s: %.60q of %d bytes, want %.60q of %d", name, got, size, c.want, c.size)
		}
	}
}
