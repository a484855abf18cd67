package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
)

// An image's packages are found beside those that are installed later.
func TestModulesOfImage(t *testing.T) {
	for _, tc := range []struct{ image, added, want string }{
		{"/opt/m", "/data/m", "/data/m:/opt/m"},
		{"/opt/m", "", "/opt/m"},
		{"", "/data/m", "/data/m"},
	} {
		cfg, extra := &Config{}, map[string]string{}
		if tc.image != "" {
			cfg.Env = []string{"NODE_PATH=" + tc.image}
		}
		if tc.added != "" {
			extra["NODE_PATH"] = tc.added
		}
		if env := cfg.environment(&account.Account{}, extra, false); !slices.Contains(env, "NODE_PATH="+tc.want) {
			t.Errorf("image %q, added %q: %q", tc.image, tc.added, env)
		}
	}
}

// Programs of packages that are installed later are found behind an image's.
func TestPathOfImage(t *testing.T) {
	for _, tc := range []struct{ image, asked, want string }{
		{"/opt/bin:/bin", "", "/opt/bin:/bin:/data/.glovebox/bin"},
		{"/opt/bin:/bin", "/mine", "/mine"},
		{"", "", defaultPath},
	} {
		cfg, extra := &Config{}, map[string]string{}
		if tc.image != "" {
			cfg.Env = []string{"PATH=" + tc.image}
		}
		if tc.asked != "" {
			extra["PATH"] = tc.asked
		}
		if env := cfg.environment(&account.Account{}, extra, false); !slices.Contains(env, "PATH="+tc.want) {
			t.Errorf("image %q, asked %q: %q", tc.image, tc.asked, env)
		}
	}
}

// pip may install beside the distribution's packages, unless the image or the
// request says otherwise.
func TestEnvironmentPip(t *testing.T) {
	for _, tc := range []struct {
		env   []string
		extra map[string]string
		want  string
	}{
		{nil, nil, "1"},
		{[]string{"PIP_BREAK_SYSTEM_PACKAGES=0"}, nil, "0"},
		{nil, map[string]string{"PIP_BREAK_SYSTEM_PACKAGES": ""}, ""},
	} {
		cfg := &Config{Env: tc.env}
		if env := cfg.environment(&account.Account{}, tc.extra, false); !slices.Contains(env, "PIP_BREAK_SYSTEM_PACKAGES="+tc.want) {
			t.Errorf("image %q, request %v: %q, want %q", tc.env, tc.extra, env, tc.want)
		}
	}
}

func TestEnvironmentThreads(t *testing.T) {
	for _, tc := range []struct {
		cpus float64
		env  []string
		want string
	}{
		{0, nil, ""},
		{0.5, nil, "1"},
		{1.5, nil, "2"},
		{4, []string{"OMP_NUM_THREADS=3"}, "3"}, // the image's
	} {
		cfg := &Config{CPUs: tc.cpus, Env: tc.env}
		var got string
		for _, v := range cfg.environment(&account.Account{}, nil, false) {
			if n, ok := strings.CutPrefix(v, threadsName+"="); ok {
				got = n
			}
		}
		if got != tc.want {
			t.Errorf("%v CPUs and %q: %q threads, want %q", tc.cpus, tc.env, got, tc.want)
		}
	}
}

// The backend of matplotlib is that of plots, unless another one is asked for.
func TestWithPlots(t *testing.T) {
	const dir = "/tmp/plots"
	for _, tc := range []struct {
		name      string
		env, want []string
		dir       string
	}{
		{"without a directory", []string{"A=1"}, []string{"A=1"}, ""},
		{"nothing", []string{"A=1"}, []string{"A=1", "MPLBACKEND=module://glovebox_plots", "PYTHONPATH=/tmp/plots"}, dir},
		{"modules", []string{"PYTHONPATH=/data:/x"}, []string{"PYTHONPATH=/data:/x:/tmp/plots", "MPLBACKEND=module://glovebox_plots"}, dir},
		{"no modules", []string{"PYTHONPATH="}, []string{"PYTHONPATH=/tmp/plots", "MPLBACKEND=module://glovebox_plots"}, dir},
		{"a backend", []string{"PYTHONPATH=/data", "MPLBACKEND=agg"}, []string{"PYTHONPATH=/data", "MPLBACKEND=agg"}, dir},
	} {
		if got := withPlots(slices.Clone(tc.env), tc.dir); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
