package guestapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHugeReplies has small values on the wire not become much memory.
func TestHugeReplies(t *testing.T) {
	many := "[" + strings.Repeat("{},", 4<<20/3) + "{}]"
	var keys strings.Builder
	keys.WriteString(`{"type":"result"`)
	for i := range 4 << 20 / 12 {
		fmt.Fprintf(&keys, `,"/%x":1`, i)
	}
	keys.WriteString("}")
	for name, decode := range map[string]func() error{
		"entries":   func() error { return json.Unmarshal([]byte(`{"entries":`+many+`}`), new(ListDirResponse)) },
		"processes": func() error { return json.Unmarshal([]byte(`{"processes":`+many+`}`), new(ListProcessesResponse)) },
		"events":    func() error { return json.Unmarshal([]byte(`{"events":`+many+`}`), new(GetWatcherEventsResponse)) },
		"contexts":  func() error { return json.Unmarshal([]byte(many), new(contextList)) },
		"result":    func() error { _, err := DecodeExecuteEvent([]byte(keys.String())); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := decode()
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "more than") {
				t.Errorf("error is %v", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("4 MiB took %d MiB", used>>20)
			}
		})
	}
}

func TestListsAtTheirBounds(t *testing.T) {
	list := func(n int) string {
		return `{"truncated":true,"entries":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, n), ",") + `]}`
	}
	var l ListDirResponse
	if err := json.Unmarshal([]byte(list(MaxListEntries)), &l); err != nil {
		t.Fatal(err)
	}
	if n := len(l.Entries); n != MaxListEntries || !l.Truncated || l.Entries[n-1].Name != "a" {
		t.Errorf("%d entries, truncated %v", n, l.Truncated)
	}
	if err := json.Unmarshal([]byte(list(MaxListEntries+1)), &l); err == nil {
		t.Error("one entry too many was taken")
	}
	for body, ok := range map[string]bool{`{}`: true, `{"entries":null}`: true, `{"entries":{}}`: false, `{"entries":[1]}`: false} {
		var l ListDirResponse
		if err := json.Unmarshal([]byte(body), &l); (err == nil) != ok || len(l.Entries) != 0 {
			t.Errorf("%s gave %d entries, %v", body, len(l.Entries), err)
		}
	}
}

// TestBodyWithoutEnd has a call return though the guest never ends its reply.
func TestBodyWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t, 10, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	done := make(chan error, 1)
	go func() { done <- g.MakeDir(t.Context(), "/x", FileOptions{}) }()
	select {
	case err := <-done:
		if err != nil && sandbox.KindOf(err) != sandbox.Unavailable {
			t.Error(err)
		}
	case <-time.After(3 * drainTimeout):
		t.Error("the call waits for the end of the reply")
	}
}
