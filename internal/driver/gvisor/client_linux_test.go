package gvisor

import (
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEarlierSupervisor sets a lease with a supervisor that does not know leases: it
// answers as it did before replies had versions. The same error of a supervisor of
// this version is an error.
func TestEarlierSupervisor(t *testing.T) {
	unknown := message.NewError(sandbox.Errorf(sandbox.Internal, "unknown operation %q", message.OpLease))
	for name, c := range map[string]struct {
		reply any
		fails bool
	}{
		"earlier": {map[string]any{"err": unknown, "incidents": map[string]any{}}, false},
		"present": {message.Reply{Version: message.Version, Err: unknown}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(answeringClient(t, c.reply), sandbox.NewID(), func(*box) {})
			defer b.release()
			ok, err := driver.SetLease(t.Context(), b, driver.Lease{End: time.Now()})
			if ok || (err != nil) != c.fails {
				t.Errorf("SetLease: %t, %v; want an error: %t", ok, err, c.fails)
			}
		})
	}
}

// answeringClient returns the client of a supervisor that answers every request with
// reply.
func answeringClient(t *testing.T, reply any) *client {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns []*net.UnixConn
	for _, fd := range fds {
		c, err := message.FileConn(os.NewFile(uintptr(fd), "socket"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c.(*net.UnixConn))
	}
	go func() {
		for {
			_, files, err := message.Receive(conns[1], make([]byte, message.MaxRequest))
			if err != nil {
				return
			}
			_ = json.NewEncoder(files[0]).Encode(reply)
			message.CloseAll(files)
		}
	}()
	return &client{
		process: &supervisorProcess{conn: conns[0], done: make(chan struct{})},
		leases:  map[string]driver.Lease{},
	}
}
