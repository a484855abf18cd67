package guest

import (
	"errors"
	"os"
	"testing"
	"time"
)

// TestStdioUnspoken has nobody ever speak.
func TestStdioUnspoken(t *testing.T) {
	in, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	far, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c := &stdioConn{in: in, out: out, ended: make(chan struct{})}
	if err := c.spokenTo(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("spokenTo where nobody speaks: %v", err)
	}
	select {
	case <-c.ended:
	default:
		t.Error("the connection goes on, and with it a guest that was started for somebody who is gone")
	}
}
