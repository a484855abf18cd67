// Package pinned makes the configurations of TLS between two ends of which each knows
// the other's certificate. No authority is involved.
//
// Packages guest/direct and driver/kubernetes/direct import it. It has no state.
package pinned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// New returns a new key with a certificate for one end, whose name is a DNS name. The
// certificate has no end: it is of use until the other end forgets it. So the clocks of
// both ends do not matter.
func New(name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, sandbox.Errorf(sandbox.Internal, "make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // no end: RFC 5280, 4.1.2.5
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, sandbox.Errorf(sandbox.Internal, "make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Server returns the configuration of a server that accepts one client, whose
// certificate is in DER. Errors are of kind Invalid.
func Server(own tls.Certificate, client []byte) (*tls.Config, error) {
	only, err := pool(client)
	if err != nil {
		return nil, err
	}
	c := config(own)
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, only
	return c, nil
}

// Client returns the configuration of a client that accepts one server, whose
// certificate is in DER and must be for name. Errors are of kind Invalid.
func Client(own tls.Certificate, server []byte, name string) (*tls.Config, error) {
	only, err := pool(server)
	if err != nil {
		return nil, err
	}
	c := config(own)
	c.RootCAs, c.ServerName = only, name
	return c, nil
}

// config has what both ends share. A resumed session would outlive the certificate that
// it began with, so there are none.
func config(own tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// pool returns a pool with one certificate, which is no authority. Only a chain of this
// certificate alone is valid.
func pool(der []byte) (*x509.CertPool, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read the certificate of the other end: %w", err)
	}
	if cert.IsCA {
		return nil, sandbox.Errorf(sandbox.Invalid, "the certificate of the other end is that of an authority")
	}
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p, nil
}
