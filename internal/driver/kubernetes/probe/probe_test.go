package probe

import (
	"context"
	"net"
	"testing"
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
			env := map[string]string{}
			if test.server != "" {
				env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"], _ = net.SplitHostPort(test.server)
			}
			got, err := Main(t.Context(), test.pod, func(name string) string { return env[name] })
			if err != nil || Result(got) != test.want {
				t.Errorf("status %d, %v, want %d", got, err, test.want)
			}
			if !Result(got).Valid() {
				t.Errorf("status %d is not valid", got)
			}
		})
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
