package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A fillEngine is as much of an engine as filling a volume takes.
type fillEngine struct {
	mu        sync.Mutex
	container bool
	volume    string // what it has, "" if it is not there
	refusals  int    // of archives that are to come, after half of each was kept
}

func (f *fillEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // without the version
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	missing := map[string]string{"message": "no such thing"}
	switch what := r.Method + " " + path; {
	case what == "POST containers/create":
		f.container = true
		if f.volume == "" {
			f.volume = "nothing"
		}
		answer(http.StatusCreated, map[string]string{"Id": "c"})
	case what == "PUT containers/v/archive":
		data, _ := io.ReadAll(r.Body)
		if f.refusals > 0 {
			f.refusals--
			f.volume = "half"
			answer(http.StatusInternalServerError, map[string]string{"message": "no space left on device"})
			return
		}
		f.volume = "no program"
		if strings.Contains(string(data), "the program") {
			f.volume = "whole"
		}
		answer(http.StatusOK, nil)
	case what == "DELETE containers/v" && f.container:
		f.container = false
		w.WriteHeader(http.StatusNoContent)
	case what == "GET containers/v/json" && f.container:
		answer(http.StatusOK, map[string]string{"Id": "c", "Created": time.Now().Format(time.RFC3339Nano)})
	case what == "GET volumes/v" && f.volume != "":
		answer(http.StatusOK, map[string]string{"Name": "v"})
	case what == "DELETE volumes/v" && f.volume != "":
		f.volume = ""
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/_ping":
		w.Header().Set("Api-Version", "1.44")
	default:
		answer(http.StatusNotFound, missing)
	}
}

// TestFillAgain fills a volume after an engine could not: what it has of the
// first time is not taken for all.
func TestFillAgain(t *testing.T) {
	f := &fillEngine{refusals: 1}
	s := httptest.NewServer(f)
	defer s.Close()
	c, err := client.New(client.WithHost("tcp://" + s.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e := &dockerapi.Engine{Client: c, Name: Docker}
	fill := filling{name: "v", files: func(context.Context, string) ([]container.File, error) {
		const text = "the program"
		return []container.File{{Name: container.GuestName, Size: int64(len(text)), Content: strings.NewReader(text)}}, nil
	}}
	if err := fillOnce(t.Context(), e, fill, "image", false); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("where the disk is full: %v", err)
	}
	for what, again := range map[string]bool{"again": false, "once more": false} {
		if err := fillOnce(t.Context(), e, fill, "image", again); err != nil || f.volume != "whole" || f.container {
			t.Errorf("%s: %v; the volume is %s, the container there: %t", what, err, f.volume, f.container)
		}
	}
	// One that could not be filled again, as somebody found it bad, is not good
	// for that.
	f.refusals = 1
	if err := fillOnce(t.Context(), e, fill, "image", true); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("filled again where the disk is full: %v", err)
	}
	if err := fillOnce(t.Context(), e, fill, "image", false); err != nil || f.volume != "whole" {
		t.Errorf("after that: %v; the volume is %s", err, f.volume)
	}
}
