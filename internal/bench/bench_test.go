package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A stub counts sandboxes and what is run in them.
type stub struct {
	mu    sync.Mutex
	alive map[string]bool
	runs  map[string]string // sandbox by run
	total int
	fail  int // every so manieth fresh sandbox fails
}

func newStub() *stub { return &stub{alive: map[string]bool{}, runs: map[string]string{}} }

func (s *stub) Start(_ context.Context, _ sandbox.Principal, req sandbox.RunRequest) (r sandbox.Run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	if req.SandboxID == "" {
		if s.fail > 0 && s.total%s.fail == 0 {
			return r, errors.New("no more room")
		}
		req.SandboxID = sandbox.NewID()
		s.alive[req.SandboxID] = true
	}
	if !s.alive[req.SandboxID] {
		return r, fmt.Errorf("sandbox %s does not live", req.SandboxID)
	}
	r.ID, r.SandboxID = sandbox.NewRunID(), req.SandboxID
	s.runs[r.ID] = r.SandboxID
	return r, nil
}

func (s *stub) Wait(_ context.Context, _ sandbox.Principal, id string) (r sandbox.Run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ID, r.SandboxID, r.Verdict.Code = id, s.runs[id], sandbox.OK
	return r, nil
}

func (s *stub) Stop(_ context.Context, _ sandbox.Principal, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive[id] {
		return fmt.Errorf("sandbox %s is stopped twice", id)
	}
	delete(s.alive, id)
	return nil
}

// overHTTP is a Caller of a stub.
type overHTTP struct{ *stub }

func (o overHTTP) RunCode(ctx context.Context, id, code string) (string, error) {
	r, err := o.Start(ctx, "", sandbox.RunRequest{SandboxID: id, Code: code})
	return r.SandboxID, err
}

func (o overHTTP) Stop(ctx context.Context, id string) error { return o.stub.Stop(ctx, "", id) }

func options(cold, warm *stub) Options {
	return Options{
		Cold: cold, Warm: warm, Rounds: 3, Callers: []int{2, 5}, Sustain: 20 * time.Millisecond, Image: "no-such-image",
		Ready: func(context.Context) error { return nil },
		Say:   func(string, ...any) {}, Version: "v1", Serve: overHTTP{warm},
	}
}

func TestRun(t *testing.T) {
	cold, warm := newStub(), newStub()
	r, err := Run(t.Context(), options(cold, warm))
	if err != nil {
		t.Fatal(err)
	}
	if len(cold.alive)+len(warm.alive) != 0 {
		t.Errorf("left: %v, %v", cold.alive, warm.alive)
	}
	var names []string
	for _, f := range r.Figures {
		if !strings.HasPrefix(f.Name, "python3, ") {
			names = append(names, f.Name)
		}
		if f.N == 0 || f.P50 > f.P99 || f.Failed != 0 {
			t.Errorf("%+v", f)
		}
	}
	want := []string{
		"glovebox, a sandbox made on demand",
		"glovebox, a fresh sandbox of the pool",
		nameFresh,
		"glovebox, python3 in a running sandbox",
		"glovebox, /bin/true in a running sandbox",
		"glovebox, 1+1 in a live context",
		nameLive,
		nameRested,
		"2 callers at once, a fresh sandbox each",
		"5 callers at once, a fresh sandbox each",
		"8 callers without a pause, a fresh sandbox each",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if last := r.Figures[len(r.Figures)-1]; last.PerSecond <= 0 || last.Goal == nil {
		t.Errorf("%+v", last)
	}
	if r.Version != "v1" {
		t.Errorf("version %q", r.Version)
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "no-such-image") {
		t.Errorf("notes %q do not say that Docker is left out", r.Notes)
	}
}

// TestSustainTakesTurns has two ways, each of which has its time in pieces.
func TestSustainTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{Options: Options{Sustain: 150 * time.Second, Say: func(string, ...any) {}}, report: &Report{}}
		var mu sync.Mutex
		var order []string
		one := func(name string, takes time.Duration) func(context.Context) (time.Duration, error) {
			return func(context.Context) (time.Duration, error) {
				mu.Lock()
				if len(order) == 0 || order[len(order)-1] != name {
					order = append(order, name)
				}
				mu.Unlock()
				time.Sleep(takes)
				return takes, nil
			}
		}
		if err := b.sustain(t.Context(), []way{{"", nil, one("ours", 500*time.Millisecond)}, {prefixDocker, nil, one("theirs", time.Second)}}); err != nil {
			t.Fatal(err)
		}
		b.report.judge()
		if diff := cmp.Diff([]string{"ours", "theirs", "ours", "theirs", "ours", "theirs"}, order); diff != "" {
			t.Error(diff)
		}
		ours, theirs := b.report.Figures[0], b.report.Figures[1]
		if ours.PerSecond < 15 || ours.PerSecond > 16 || theirs.PerSecond > 8 || ours.Times < 1.9 || ours.N < 150*16 {
			t.Errorf("%+v, %+v", ours, theirs)
		}
	})
}

func TestRunTellsOfFailures(t *testing.T) {
	cold, warm := newStub(), newStub()
	o := options(cold, warm)
	o.Rounds, o.Callers, o.Sustain = 1, []int{20}, 0
	warm.fail = 9
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Figures[len(r.Figures)-1]; f.N != 20 || f.Failed == 0 || len(r.Notes) < 2 {
		t.Errorf("%+v, notes %q", f, r.Notes)
	}
	if len(warm.alive) != 0 {
		t.Errorf("left: %v", warm.alive)
	}
}

func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cold, warm := newStub(), newStub()
	o := options(cold, warm)
	o.Callers = []int{1}
	o.Ready = func(context.Context) error { cancel(); return ctx.Err() }
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(cold.alive)+len(warm.alive) != 0 {
		t.Errorf("left: %v, %v", cold.alive, warm.alive)
	}
}

// TestSVGBars checks whose colour each bar has, and that decades are of one length.
func TestSVGBars(t *testing.T) {
	var b strings.Builder
	names := []string{nameDocker, prefixDocker + nameSustained, prefixDocker + nameBurst(100), "python, a plot", nameFresh, nameSustained, nameBurst(8)}
	var r Report
	for _, name := range names {
		r.Figures = append(r.Figures, Figure{Name: name, P50: 3, P99: 300})
	}
	if err := SVG(&b, r); err != nil {
		t.Fatal(err)
	}
	const ours, others = "#1a7f64", "#9aa4b1"
	bars := regexp.MustCompile(`(?m)text-anchor="end">(.*)</text>\n<rect [^>]*fill="(#[0-9a-f]+)"/>`).FindAllStringSubmatch(b.String(), -1)
	if len(bars) != len(names) {
		t.Fatalf("%d bars, want %d", len(bars), len(names))
	}
	for i, bar := range bars {
		want := others
		if i >= 4 {
			want = ours
		}
		if bar[1] != names[i] || bar[2] != want {
			t.Errorf("the bar of %q is %s, want %s", bar[1], bar[2], want)
		}
	}
	var at []float64
	for _, line := range regexp.MustCompile(`<line x1="([0-9.]+)"[^>]*stroke="#ddd"`).FindAllStringSubmatch(b.String(), -1) {
		x, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, x)
	}
	if len(at) != 4 { // 1, 10, 100, 1000 ms
		t.Fatalf("decades begin at %v", at)
	}
	for i := range 3 {
		if length := at[i+1] - at[i]; math.Abs(length-(at[1]-at[0])) > 0.2 || length < 50 {
			t.Errorf("decades begin at %v", at)
		}
	}
}

func TestSVG(t *testing.T) {
	var b strings.Builder
	r := Report{Machine: Machine{OS: "linux", CPU: "<fast>"}, Figures: []Figure{
		{Name: "docker run", P50: 210, P99: 400}, {Name: "glovebox & more", P50: 9, P99: 20}, {Name: "memory", Memory: 1 << 20},
	}}
	for range 2 {
		if err := SVG(&b, r); err != nil {
			t.Fatal(err)
		}
		for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, &b)
			}
		}
		b.Reset()
		r.Figures = nil // nothing to draw is no fault
	}
}
