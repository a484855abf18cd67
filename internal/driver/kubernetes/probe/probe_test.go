package probe

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// listening returns the address of a listener, which the test's end closes.
func listening(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- listen(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("listen: %v", err)
		}
	})
	return l.Addr().String()
}

func TestDial(t *testing.T) {
	there, notThere := listening(t), "127.0.0.1:0" // nothing listens at port 0
	for _, test := range []struct {
		name, pod, server string
		want              Result
	}{
		{"nothing", notThere, notThere, Tried},
		{"the Pod", there, notThere, Tried | ReachedPod},
		{"the API server", notThere, there, Tried | ReachedAPIServer},
		{"both", there, there, Tried | ReachedPod | ReachedAPIServer},
		{"no API server", notThere, "", Tried | NoAPIServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := dial(t.Context(), test.pod, test.server, 0)
			if got != test.want {
				t.Errorf("status %d, want %d", got, test.want)
			}
			if !got.Valid() {
				t.Errorf("status %d is not valid", got)
			}
		})
	}
}

// TestMainDials: the API server's address is in the environment.
func TestMainDials(t *testing.T) {
	for host, want := range map[string]Result{"127.0.0.1": Tried, "": Tried | NoAPIServer} {
		env := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "0"}
		got, err := Main(t.Context(), "127.0.0.1:0", func(name string) string { return env[name] })
		if err != nil || Result(got) != want {
			t.Errorf("API server at %q: status %d, %v, want %d", host, got, err, want)
		}
	}
}

// TestDialLate: a policy that holds some time after the start of the Pod denies traffic,
// and the result says that it was late.
func TestDialLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // closes the listener when it was reached
		conn, err := l.Accept()
		if err == nil {
			err = errors.Join(conn.Close(), l.Close())
		}
		ended <- err
	}()
	got := dial(t.Context(), l.Addr().String(), "127.0.0.1:0", time.Minute)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if want := Tried | Late; got != want || !got.Valid() {
		t.Errorf("status %d, want %d", got, want)
	}
}

// TestOtherStatuses: the statuses of failures, and of signals, are no results.
func TestOtherStatuses(t *testing.T) {
	for _, status := range []Result{0, 1, 2, 125, 127, 128, 137, 143} {
		if status.Valid() {
			t.Errorf("%d is valid", status)
		}
	}
}
