package e2bapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// used is a guest's answer with that much memory in use.
func used(memory int) string {
	return fmt.Sprintf(`{"ts":1,"cpu_count":4,"cpu_used_pct":12.5,"mem_total":1000,"mem_used":%d,"mem_cache":7,"disk_total":2000,"disk_used":9}`, memory)
}

// memories returns the memory in use in each metric of an answer.
func memories(t *testing.T, body string) []int64 {
	t.Helper()
	var list []metric
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	got := []int64{}
	for _, m := range list {
		got = append(got, m.MemUsed)
	}
	return got
}

// TestMetricsHistory: samples are kept for the sandboxes that run, and the answer
// has those of the period.
func TestMetricsHistory(t *testing.T) {
	e, s, srv := newTest(t)
	clock := now
	s.opts.Now = func() time.Time { return clock }
	id, other := e.add("alice", nil), e.add("mallory", nil)
	for i := range 3 {
		e.answer = answer(200, used(i))
		s.sampleAll(t.Context())
		clock = clock.Add(sampleEvery)
	}
	e.answer = answer(200, used(100))
	first := now.Unix()
	get := func(query string) (int, string) {
		t.Helper()
		status, _, body := do(t, "GET", srv.URL+"/sandboxes/"+id+"/metrics"+query, "", "X-API-KEY", "alice")
		return status, body
	}
	for query, want := range map[string][]int64{
		"":                                {0, 1, 2, 100},
		fmt.Sprintf("?start=%d", first+1): {1, 2, 100},
		fmt.Sprintf("?end=%d", first+5):   {0, 1},
		fmt.Sprintf("?start=%[1]d&end=%[1]d", first+5): {1},
		"?end=1":                             {},
		fmt.Sprintf("?start=%d", first+3600): {},
	} {
		status, body := get(query)
		if status != 200 {
			t.Fatalf("%s: status %d: %s", query, status, body)
		}
		if diff := cmp.Diff(want, memories(t, body)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	for _, query := range []string{"?start=x", "?end=-1", "?start=2&end=1"} {
		if status, body := get(query); status != 400 {
			t.Errorf("%s: status %d: %s", query, status, body)
		}
	}

	// A paused sandbox keeps its history, and gets no further samples.
	if err := e.Hibernate(t.Context(), "alice", id); err != nil {
		t.Fatal(err)
	}
	s.sampleAll(t.Context())
	_, body := get("")
	if diff := cmp.Diff([]int64{0, 1, 2}, memories(t, body)); diff != "" {
		t.Error(diff)
	}
	if status, _, _ := do(t, "GET", srv.URL+"/sandboxes/"+other+"/metrics", "", "X-API-KEY", "alice"); status != 404 {
		t.Errorf("another's metrics: status %d", status)
	}
	delete(e.boxes, id)
	s.sampleAll(t.Context())
	if got := s.history.list(id); got != nil {
		t.Errorf("%d samples are kept of a sandbox that ended", len(got))
	}
}

// TestMetricsOfSeveral asks for the metrics of several sandboxes at once.
func TestMetricsOfSeveral(t *testing.T) {
	e, s, srv := newTest(t)
	sampled := e.add("alice", nil)
	e.answer = answer(200, used(1))
	s.sampleAll(t.Context())
	fresh, other := e.add("alice", nil), e.add("mallory", nil)
	paused := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Hibernated })
	e.answer = answer(200, used(2))
	ids := strings.Join([]string{sampled, sandbox.HostID(fresh), other, paused, "nonsense"}, ",")
	status, _, body := do(t, "GET", srv.URL+"/sandboxes/metrics?sandbox_ids="+ids, "", "X-API-KEY", "alice")
	var got struct{ Sandboxes map[string]metric }
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	want := metric{Timestamp: now, TimestampUnix: now.Unix(), CPUCount: 1, CPUUsedPct: 50, MemUsed: 1, MemTotal: 1000, MemCache: 7, DiskUsed: 9, DiskTotal: 2000}
	want2 := want
	want2.MemUsed = 2
	if diff := cmp.Diff(map[string]metric{sandbox.HostID(sampled): want, sandbox.HostID(fresh): want2}, got.Sandboxes); diff != "" {
		t.Error(diff)
	}
	for _, query := range []string{"", "?sandbox_ids=", "?sandbox_ids=" + strings.Repeat("a,", 10) + manyIDs(101)} {
		if status, _, body := do(t, "GET", srv.URL+"/sandboxes/metrics"+query, "", "X-API-KEY", "alice"); status != 400 {
			t.Errorf("%.40s: status %d: %s", query, status, body)
		}
	}
}

func manyIDs(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("sbx", i)
	}
	return strings.Join(ids, ",")
}

// TestHistoryIsBounded: the oldest samples go.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	for i := range maxSamples + 3 {
		h.add("a", sample{at: now.Add(time.Duration(i) * sampleEvery)})
	}
	all := h.list("a")
	if len(all) != maxSamples || !all[0].at.Equal(now.Add(3*sampleEvery)) {
		t.Errorf("%d samples from %v on", len(all), all[0].at)
	}
	for i, s := range all[1:] {
		if !s.at.After(all[i].at) {
			t.Fatalf("sample %d is not after its predecessor", i+1)
		}
	}
}

// TestRunSamples: the server samples every five seconds, until it shuts down.
func TestRunSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{boxes: map[string]*fakeBox{}, answer: answer(200, used(1))}
		s := New(Options{Engine: e, Auth: fakeAuth{}, Access: fakeAccess{}, Now: time.Now})
		id := e.add("alice", nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(t.Context())
		}()
		time.Sleep(time.Minute + time.Second)
		s.Shutdown()
		<-done
		if got := len(s.history.list(id)); got != 13 {
			t.Errorf("%d samples in a minute, want 13", got)
		}
	})
}
