package transport

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEvents has a principal fill the store of events.
func TestEvents(t *testing.T) {
	shares := ledger.NewShares(0)
	s := newEventStore(shares.Events)
	as := func(who sandbox.Principal) context.Context {
		return auth.NewContext(t.Context(), auth.Identity{Principal: who})
	}
	for session, streams := range map[string][]string{"a": {"1", "2"}, "b": {"1"}} {
		for _, stream := range streams {
			if err := s.Open(as(sandbox.Principal(session)), session, stream); err != nil {
				t.Fatal(err)
			}
		}
	}
	small, large := []byte("small"), make([]byte, 1<<20)
	for i := range 3 {
		if err := s.Append(as("b"), "b", "1", append(small, byte('0'+i))); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if err := s.Append(as("a"), "a", "1", large); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(as("a"), "a", "2", make([]byte, shares.Events.Stats().Total+1)); err != nil {
		t.Fatal(err)
	}
	if used := shares.Events.Stats().Used; used > shares.Events.Stats().Total {
		t.Errorf("%d bytes are kept", used)
	}
	var got []string
	for data, err := range s.After(as("b"), "b", "1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
	}
	if !slices.Equal(got, []string{"small1", "small2"}) {
		t.Errorf("b's events after the first: %q", got)
	}
	for _, stream := range []string{"1", "2"} {
		for _, err := range s.After(as("a"), "a", stream, -1) {
			if err == nil {
				t.Errorf("an event of a's stream %s is there that went", stream)
			}
		}
	}
	n := 0
	for _, err := range s.After(as("a"), "a", "1", 98) {
		if err == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of a's events after the 99th, want the last", n)
	}
	for _, session := range []string{"a", "b", "none"} {
		if err := s.SessionClosed(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	if st := shares.Events.Stats(); st.Used != 0 {
		t.Errorf("events of no session are kept: %+v", st)
	}
}

// TestEventStreams has a session make more requests than it may have streams.
func TestEventStreams(t *testing.T) {
	shares := ledger.NewShares(0)
	s := newEventStore(shares.Events)
	const more = 100
	for i := range maxEventStreams + more {
		stream := fmt.Sprint(i)
		if err := s.Open(t.Context(), "s", stream); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), "s", stream, []byte("text")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.sessions["s"].streams); n != maxEventStreams {
		t.Errorf("%d streams are kept, want %d", n, maxEventStreams)
	}
	if used, want := shares.Events.Stats().Used, int64(maxEventStreams*(4+eventCost)); used != want {
		t.Errorf("%d bytes are held, want %d", used, want)
	}
	if err := s.Append(t.Context(), "s", "0", []byte("late")); err != nil {
		t.Fatal(err)
	}
	for stream, kept := range map[string]bool{"0": false, fmt.Sprint(more): true} {
		for _, err := range s.After(t.Context(), "s", stream, -1) {
			if (err == nil) != kept {
				t.Errorf("an event of stream %s: %v", stream, err)
			}
		}
	}
}
