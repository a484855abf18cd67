package pinned_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/pinned"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func newEnd(t *testing.T, name string) tls.Certificate {
	t.Helper()
	c, err := pinned.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func der(c tls.Certificate) []byte { return c.Certificate[0] }

// meet has a client and a server talk. It returns what each of them says.
func meet(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	talk := func(conn net.Conn) error {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err := conn.Write([]byte{1})
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		return err
	}
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = talk(tls.Server(conn, server))
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	clientErr = talk(tls.Client(conn, client))
	return <-done, clientErr
}

// issued returns a key with a certificate that another end has signed, as an authority
// would.
func issued(t *testing.T, by tls.Certificate, name string) tls.Certificate {
	t.Helper()
	own := newEnd(t, name)
	parent, err := x509.ParseCertificate(der(by))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "other"}, DNSNames: []string{name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := own.PrivateKey.(*ecdsa.PrivateKey)
	text, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{text, der(by)}, PrivateKey: key}
}

// TestEnds: only the two ends that know each other's certificate talk.
func TestEnds(t *testing.T) {
	box, driver, other := newEnd(t, "box"), newEnd(t, "driver"), newEnd(t, "box")
	server := func(own tls.Certificate, client []byte) *tls.Config {
		c, err := pinned.Server(own, client)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := func(own tls.Certificate, server []byte, name string) *tls.Config {
		c, err := pinned.Client(own, server, name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	none := client(driver, der(box), "box")
	none.Certificates = nil
	old := client(driver, der(box), "box")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, test := range []struct {
		name           string
		server, client *tls.Config
		ok             bool
	}{
		{"both", server(box, der(driver)), client(driver, der(box), "box"), true},
		{"another client", server(box, der(driver)), client(other, der(box), "box"), false},
		{"a client without a certificate", server(box, der(driver)), none, false},
		{"a client that the known one has signed for", server(box, der(driver)), client(issued(t, driver, "driver"), der(box), "box"), false},
		{"another server of that name", server(other, der(driver)), client(driver, der(box), "box"), false},
		{"a server that the known one has signed for", server(issued(t, box, "box"), der(driver)), client(driver, der(box), "box"), false},
		{"a server with another name", server(box, der(driver)), client(driver, der(box), "other"), false},
		{"an older TLS", server(box, der(driver)), old, false},
	} {
		serverErr, clientErr := meet(t, test.server, test.client)
		if (serverErr == nil && clientErr == nil) != test.ok {
			t.Errorf("%s: the server says %v, and the client %v", test.name, serverErr, clientErr)
		}
		if !test.ok && (serverErr == nil || clientErr == nil) {
			t.Errorf("%s: one end believes in the other: server %v, client %v", test.name, serverErr, clientErr)
		}
	}
}

// TestNoCertificate: what is no certificate, and the one of an authority, are refused.
func TestNoCertificate(t *testing.T) {
	own := newEnd(t, "box")
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	key := own.PrivateKey.(*ecdsa.PrivateKey)
	authority, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{nil, []byte("hello"), authority} {
		if _, err := pinned.Server(own, text); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Server with %d bytes: %v", len(text), err)
		}
		if _, err := pinned.Client(own, text, "box"); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Client with %d bytes: %v", len(text), err)
		}
	}
}
