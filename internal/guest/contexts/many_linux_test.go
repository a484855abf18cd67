package contexts_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// atOnce calls f for each number below n, eight at a time.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range n {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }() // f may end the test
			f(i)
		})
	}
	wg.Wait()
}

// TestContextMany has a client of E2B's protocol make 100 contexts of Python in one
// sandbox, and use all of them. It fills the sandbox up to the bound, asks for one
// more, and removes all. Nothing is left then.
func TestContextMany(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	c := newE2BClient(t, h)
	c.list() // makes the default contexts
	c.http.CloseIdleConnections()
	files, processes := h.OpenFiles(), len(h.Descendants())
	const n, bound = 100, 128
	ids := make([]string, n)
	atOnce(n, func(i int) {
		status, b := c.call("POST", "/contexts", `{"language": "python"}`)
		var made guestapi.Context
		if err := json.Unmarshal(b, &made); err != nil || status != http.StatusOK || made.ID == "" {
			t.Errorf("context %d: status %d: %s", i, status, b)
			return
		}
		ids[i] = made.ID
	})
	run := func(i int, code string) string {
		body, err := json.Marshal(map[string]string{"context_id": ids[i], "code": code})
		if err != nil {
			t.Error(err)
			return ""
		}
		_, b := c.call("POST", "/execute", string(body))
		return string(b)
	}
	atOnce(n, func(i int) { run(i, fmt.Sprintf("%%time\nx = %d", i)) })
	atOnce(n, func(i int) {
		if b := run(i, "y = !echo value {x}\ny[0]"); !strings.Contains(b, fmt.Sprintf(`"text":"value %d"`, i)) {
			t.Errorf("context %d of %d: %s", i, n, b)
		}
	})
	if got := len(h.Descendants()); got < n {
		t.Errorf("%d processes with %d contexts", got, n)
	}

	var list []guestapi.Context
	read := func() {
		_, b := c.call("GET", "/contexts", "")
		list = nil
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
	}
	for read(); len(list) < bound; read() {
		if status, b := c.call("POST", "/contexts", `{"language": "sh"}`); status != http.StatusOK {
			t.Fatalf("context %d: status %d: %s", len(list), status, b)
		}
	}
	status, b := c.call("POST", "/contexts", `{"language": "sh"}`)
	if status != http.StatusTooManyRequests || !strings.Contains(string(b), "128 contexts, which is the maximum of a sandbox: remove one first") {
		t.Errorf("beyond the bound: status %d: %s", status, b)
	}
	atOnce(len(list), func(i int) {
		if status, b := c.call("DELETE", "/contexts/"+list[i].ID, ""); status >= 300 {
			t.Errorf("remove: status %d: %s", status, b)
		}
	})
	if got := c.list(); got != "" {
		t.Errorf("after their removal there are %s", got)
	}
	c.http.CloseIdleConnections()
	guesttest.Eventually(t, "the processes of the contexts to be gone", func() bool { return len(h.Descendants()) == processes })
	guesttest.Eventually(t, "the descriptors of the contexts to be gone", func() bool { return h.OpenFiles() <= files })
}
