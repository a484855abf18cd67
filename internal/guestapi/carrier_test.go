package guestapi

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn listens for one connection, which is there already.
type oneConn struct{ conns chan net.Conn }

func (l oneConn) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (l oneConn) Close() error   { close(l.conns); return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// written counts what is written to a connection.
type written struct {
	net.Conn
	bytes atomic.Int64
}

func (w *written) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.bytes.Add(int64(n))
	return n, err
}

// TestCarrierSpeaks carries a stream on which nobody says anything. Proxies end
// what is silent, so either side says something now and then.
func TestCarrierSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		host, guest := &written{Conn: near}, &written{Conn: far}
		s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})}
		s.Protocols.SetUnencryptedHTTP2(true)
		l := oneConn{conns: make(chan net.Conn, 1)}
		l.conns <- guest
		go s.Serve(l)
		c := NewCarrier(host)
		conn, err := c.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			before := [2]int64{host.bytes.Load(), guest.bytes.Load()}
			time.Sleep(time.Minute)
			if after := [2]int64{host.bytes.Load(), guest.bytes.Load()}; after[0] == before[0] || after[1] == before[1] {
				t.Fatalf("within a minute host and guest wrote %d and %d bytes", after[0]-before[0], after[1]-before[1])
			}
		}
		select {
		case <-c.Done():
			t.Error("the stream has ended")
		default:
		}
		conn.Close()
		c.Close()
		s.Close()
	})
}
