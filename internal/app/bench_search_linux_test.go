//go:build !nogvisor

package app

import (
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// makeSearched makes 100 MB in 10,000 files of a sandbox. A hundredth of the files has
// the text that is searched.
const makeSearched = `import os
line = "the quick brown fox jumps over the lazy dog, again and again, %d\n"
for d in range(100):
    os.makedirs(f"/data/tree/d{d}")
    for f in range(100):
        text = "".join(line % n for n in range(150))
        text += "NEEDLE\n" if f == 0 else ""
        open(f"/data/tree/d{d}/f{f}.txt", "w").write(text[:10240] if f else text)
`

// BenchmarkSearch searches 100 MB in 10,000 files of a sandbox, and lets grep do the
// same in it, in turn.
func BenchmarkSearch(b *testing.B) {
	sys := benchSystem(b)
	run := func(r sandbox.RunRequest) sandbox.Run {
		b.Helper()
		got, err := sys.Engine.Start(b.Context(), sandbox.Local, r)
		if err == nil {
			got, err = sys.Engine.Wait(b.Context(), sandbox.Local, got.ID)
		}
		if err != nil || got.Verdict.Code != sandbox.OK {
			b.Fatalf("%v, %+v", err, got.Verdict)
		}
		return got
	}
	id := run(sandbox.RunRequest{Code: makeSearched, Language: "python"}).SandboxID
	var ours, grep series
	for b.Loop() {
		for _, pattern := range []string{"NEEDLE", "NEE[A-Z]+E$"} {
			began := time.Now()
			found, err := sys.Engine.SearchFiles(b.Context(), sandbox.Local, id, sandbox.SearchRequest{Path: "tree", Pattern: pattern})
			if err != nil || found.Matches != 100 || found.Searched != 10_000 {
				b.Fatalf("%+v, %v", found.Cut, err)
			}
			ours = append(ours, time.Since(began))
			began = time.Now()
			run(sandbox.RunRequest{SandboxID: id, Commands: []string{"grep -rE '" + pattern + "' tree | wc -l | grep -x 100"}})
			grep = append(grep, time.Since(began))
		}
	}
	report(b, []string{"search_files", "grep"}, ours, grep)
}
