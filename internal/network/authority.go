package network

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Validity of certificates. An authority's certificate outlives every sandbox. A
// server's certificate is valid no longer than the strictest clients accept.
const (
	authorityFor = 10 * 365 * 24 * time.Hour
	leafFor      = 90 * 24 * time.Hour
	clockSkew    = 24 * time.Hour
	maxLeaves    = 256
)

// An authority signs the certificates with which a gateway presents itself to its
// sandbox as the hosts of secrets. Its private key exists only in the gateway's
// process. It is never on disk, and sandboxes do not share authorities.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of every server's certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// newAuthority returns an authority whose name constraints allow only the hosts
// of secrets. Clients that verify its certificates check the constraints, too.
func newAuthority(secrets []sandbox.Secret) (*authority, error) {
	a := &authority{leaves: map[string]*tls.Certificate{}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	if a.leaf, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:                serial(),
		Subject:                     pkix.Name{CommonName: "Glovebox, for the secrets of one sandbox"},
		NotBefore:                   now.Add(-clockSkew),
		NotAfter:                    now.Add(authorityFor),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
	}
	for _, s := range secrets {
		for _, r := range s.Hosts.Rules() {
			// A constraint includes the names below its own.
			if !slices.Contains(template.PermittedDNSDomains, r.Host) {
				template.PermittedDNSDomains = append(template.PermittedDNSDomains, r.Host)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

// serial returns a unique serial number.
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[0] &= 0x7f
	b[0] |= 0x40
	return new(big.Int).SetBytes(b[:])
}

// certificate returns a certificate for the host of that name.
func (a *authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if c := a.leaves[name]; c != nil && now.Before(c.Leaf.NotAfter.Add(-clockSkew)) {
		return c, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(),
		DNSNames:     []string{name}, // no common name, because its length is limited to 64
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(leafFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves) // this slows a sandbox that asks for many names
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: leaf}
	a.leaves[name] = c
	return c, nil
}
