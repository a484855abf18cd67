package interpreter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadLabels(t *testing.T) {
	for _, test := range []struct {
		name   string
		labels map[string]string
		want   Labels
		own    []string // the command of the runner that they describe
		kernel string
	}{
		{name: "none"},
		{
			name:   "as mcp-code-runner's",
			labels: map[string]string{"sandbox.runner": "true", "sandbox.language": "Ruby"},
			want:   Labels{Runner: true, Languages: []string{"ruby"}},
		},
		{
			name: "ours",
			labels: map[string]string{
				"sandbox.runner": "true", "sandbox.language": "ruby", "glovebox.extension": ".rb", "glovebox.entry": "ruby -W0 {file}",
			},
			want: Labels{Runner: true, Languages: []string{"ruby"}, Extension: "rb", Entry: []string{"ruby", "-W0", "{file}"}},
			own:  []string{"ruby", "-W0", "/d/main.rb", "x"},
		},
		{
			name:   "an entry that reads its input",
			labels: map[string]string{"sandbox.runner": "true", "sandbox.language": "awk", "glovebox.entry": "run -"},
			want:   Labels{Runner: true, Languages: []string{"awk"}, Entry: []string{"run", "-"}},
		},
		{
			name:   "imports",
			labels: map[string]string{"sandbox.runner": "true", "sandbox.language": "full", "glovebox.languages": "python Go", "glovebox.warm-imports": " numpy  pandas "},
			want:   Labels{Runner: true, Languages: []string{"python", "go"}, Warm: []string{"numpy", "pandas"}},
			kernel: "python",
		},
		{
			name: "not well-formed",
			labels: map[string]string{
				"sandbox.runner": "true", "sandbox.language": "../x y", "glovebox.extension": "a/b", "glovebox.entry": strings.Repeat("x ", maxLabel),
				"glovebox.warm-imports": strings.Repeat("m ", 100),
			},
			want: Labels{Warm: strings.Fields(strings.Repeat("m ", maxWords))},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ReadLabels(test.labels)
			if diff := cmp.Diff(test.want, got, cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r, ok := got.Own()
			if ok != (test.own != nil) {
				t.Fatalf("Own() = %+v, %v", r, ok)
			}
			if ok {
				if diff := cmp.Diff(test.own, r.Variants[0].Argv("/d", r.FileName(), []string{"x"})); diff != "" {
					t.Errorf("argv (-want +got):\n%s", diff)
				}
			}
			if k := got.Kernel(Runners()); k != test.kernel {
				t.Errorf("kernel %q, want %q", k, test.kernel)
			}
		})
	}
}
