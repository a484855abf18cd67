package fake

import (
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestCarrier has one stream to a guest carry several.
func TestCarrier(t *testing.T) {
	drivertest.CheckGoroutines(t)
	b := drivertest.Launch(t, open(t, Options{}), spec())
	conn, err := b.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := guestapi.NewCarrier(conn)
	one, two := guestapi.NewClient(c.Dial), guestapi.NewClient(c.Dial)
	defer two.Close()
	for range 3 {
		for _, client := range []*guestapi.Client{one, two} {
			if err := client.Health(t.Context()); err != nil {
				t.Fatalf("a guest over a carried stream: %v", err)
			}
		}
	}
	one.Close()
	if err := two.Health(t.Context()); err != nil {
		t.Errorf("after another stream was closed: %v", err)
	}
	raw, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := raw.Read(make([]byte, 1))
		read <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Error("a carrier that was closed does not say that it ended")
	}
	select {
	case err := <-read:
		if err == nil {
			t.Error("a read of a stream whose carrier was closed succeeds")
		}
	case <-time.After(10 * time.Second):
		t.Error("a read of a stream whose carrier was closed does not return")
	}
	if conn, err := c.Dial(t.Context()); err == nil {
		conn.Close()
		t.Error("Dial of a carrier that was closed succeeds")
	} else if sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("Dial of a carrier that was closed: %v (kind %s), want kind unavailable", err, sandbox.KindOf(err))
	}
}
