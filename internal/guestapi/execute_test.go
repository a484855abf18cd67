package guestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// oneLine has room for one long event.
type oneLine chan struct{}

func (c oneLine) take(ctx context.Context) (func(), error) {
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// eventGuest sends the head of an event with n bytes of text, and then tail.
func eventGuest(t *testing.T, n int, tail string) *fakeGuest {
	part := bytes.Repeat([]byte("x"), 1<<20)
	return newFakeGuest(t, 100, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"type":"result","text":"`)
		for range n / len(part) {
			w.Write(part)
		}
		io.WriteString(w, tail)
		w.(http.Flusher).Flush()
		if tail == "" {
			<-r.Context().Done()
		}
	})
}

func (g *fakeGuest) execution(t *testing.T, room LineRoom) *Events {
	t.Helper()
	x, err := g.Execute(t.Context(), "", &ExecuteRequest{Code: "x"}, room)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func heapMiB() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc >> 20)
}

// TestEventsWithoutEnd has each of several streams send a long event that never
// ends. The memory of one is taken, and all streams fail.
func TestEventsWithoutEnd(t *testing.T) {
	const streams = 8
	g, room := eventGuest(t, 30<<20, ""), make(oneLine, 1)
	before := heapMiB()
	errs := make(chan error, streams)
	for range streams {
		x := g.execution(t, room.take)
		x.source.(*codeEvents).patience = 3 * time.Second
		go func() {
			_, err := x.Next()
			errs <- err
		}()
	}
	time.Sleep(2 * time.Second)
	// The buffers of a connection and of each stream hold a little more.
	if held := heapMiB() - before; held > 120 {
		t.Errorf("%d streams hold %d MiB", streams, held)
	}
	for range streams {
		if err := <-errs; !errors.Is(err, ErrLongEvent) {
			t.Errorf("error is %v", err)
		}
	}
	if len(room) != 0 {
		t.Error("room is held")
	}
}

// TestLongEvents has several streams share the room for one long event. All of
// them arrive.
func TestLongEvents(t *testing.T) {
	const size = 16 << 20
	g, room := eventGuest(t, size, "\"}\n{\"type\":\"stdout\",\"text\":\"after\"}\n"), make(oneLine, 1)
	var wg sync.WaitGroup
	for range 6 {
		x := g.execution(t, room.take)
		wg.Go(func() {
			ev, err := x.Next()
			if err != nil || len(ev.Result.Data["text/plain"]) != size+2 {
				t.Errorf("%+.100v, %v", ev, err)
				return
			}
			if ev, err = x.Next(); err != nil || string(ev.Data.Stdout) != "after" {
				t.Errorf("%+.100v, %v", ev, err)
			}
		})
	}
	wg.Wait()
	if len(room) != 0 {
		t.Error("room is held")
	}
}

func TestTooLongEvents(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		tail string
		room LineRoom
		text string
	}{
		"TooLong": {maxEventLine + 1<<20, "\"}\n", nil, "exceeds"},
		"NoEnd":   {2 << 20, "", nil, "not whole"},
		"NoRoom":  {2 << 20, "\"}\n", func(context.Context) (func(), error) { return nil, errors.New("full") }, "no room for it: full"},
	} {
		t.Run(name, func(t *testing.T) {
			x := eventGuest(t, c.size, c.tail).execution(t, c.room)
			patience := &x.source.(*codeEvents).patience
			if *patience = 10 * time.Second; name == "NoEnd" {
				*patience = 300 * time.Millisecond
			}
			if _, err := x.Next(); !errors.Is(err, ErrLongEvent) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestCloseGivesBackRoom closes a stream that has room, and one that waits.
func TestCloseGivesBackRoom(t *testing.T) {
	g, room := eventGuest(t, 2<<20, "\"}\n"), make(oneLine, 1)
	holder, waits := g.execution(t, room.take), g.execution(t, room.take)
	if _, err := holder.Next(); err != nil || len(room) != 1 {
		t.Fatal(len(room), err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := waits.Next()
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	waits.Close()
	if err := <-done; err == nil {
		t.Error("a closed stream had an event")
	}
	holder.Close()
	if len(room) != 0 {
		t.Error("room is held")
	}
}

// TestForgedPreviews has large previews, which no guest makes, take little more
// memory than their bytes.
func TestForgedPreviews(t *testing.T) {
	const size = 32 << 20
	line := []byte(`{"type":"result","png":"iVBO","previews":{"image/png":{"data":"` + strings.Repeat("A", size) + `"}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ev, err := DecodeExecuteEvent(line)
	runtime.ReadMemStats(&after)
	if err != nil || ev.Result.Previews["image/png"].Why == "" {
		t.Errorf("%+.100v, %v", ev, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 3*size {
		t.Errorf("%d MiB took %d MiB", size>>20, used>>20)
	}
}

// TestSplitObject has an object be split as encoding/json does it.
func TestSplitObject(t *testing.T) {
	for _, object := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":{"b":1,"c":[{"d":1}]},"e":[]}`, `{ "a:\"\u0041" : "{:\\\"" , "b":":","c":[ "]" , {"}":"{"}] ,"d": -1.5e3 ,"e":null}`,
		"\n{\"a\":true,\"a\":false\t,\r\"b\":{}}\n", `{"a":{},"b":[[]],"c":""}`, `{"":0}`, `{"a":12}`,
	} {
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(object), &want); err != nil {
			t.Fatal(object, err)
		}
		got, err := splitObject([]byte(object))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", object, err, diff)
		}
	}
	// What is no object, or no JSON, has no panic.
	for _, object := range []string{``, ` `, `null`, `[{"a":1}]`, `"a"`, `{"a`, `{"a"`, `{"a":`, `{"a":"\`, `{"a":}`, `{"\`, `{"a":1,`, `{"a":]`} {
		got, err := splitObject([]byte(object))
		if err == nil && len(got) > 1 {
			t.Errorf("%s: %s", object, got)
		}
	}
}

// FuzzSplitObject compares splitObject with encoding/json.
func FuzzSplitObject(f *testing.F) {
	f.Add([]byte(`{ "a:\"" : "{:\\\"" , "b":[ "]" , {"}":"{"}] ,"d": -1.5e3 ,"e":null}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		got, err := splitObject(object)
		var want map[string]json.RawMessage
		if json.Unmarshal(object, &want) != nil || want == nil || len(want) > maxResultKeys/2 {
			return
		}
		if err != nil && strings.Contains(err.Error(), "more than") {
			return // the same key several times
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", object, err, diff)
		}
	})
}

// TestEventsKeepHTML has a result in HTML be as long on the wire as it is.
func TestEventsKeepHTML(t *testing.T) {
	value, _ := json.Marshal(1)
	html := append(append([]byte{'"'}, bytes.Repeat([]byte("<&>"), 1000)...), '"')
	line, err := AppendExecuteEvent([]byte("before"), &ExecuteEvent{Result: &sandbox.Result{Data: map[string]json.RawMessage{"text/html": html, "application/json": value}}})
	if err != nil || !bytes.Contains(line, html) || !bytes.HasPrefix(line, []byte("before{")) || bytes.Count(line, []byte("\n")) != 1 {
		t.Errorf("%.200s, %v", line, err)
	}
	ev, err := DecodeExecuteEvent(line[len("before"):])
	if err != nil || !bytes.Equal(ev.Result.Data["text/html"], html) {
		t.Errorf("%+.100v, %v", ev, err)
	}
}
