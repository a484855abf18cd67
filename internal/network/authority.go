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

// How long certificates are good: an authority's longer than any sandbox lives,
// a server's no longer than the strictest clients accept.
const (
	authorityFor = 10 * 365 * 24 * time.Hour
	leafFor      = 90 * 24 * time.Hour
	clockSkew    = 24 * time.Hour
	maxLeaves    = 256
)

// An authority signs the certificates by which a sandbox takes its gateway for
// the hosts that secrets are for. Its key is made here, and is nowhere else: not
// on disk, not in another process, not another sandbox's.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of every server's certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// newAuthority returns an authority that can speak for the hosts of secrets and
// for no others: who checks its certificates checks that too.
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

// serial returns a number that no other certificate has.
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // which never fails
	b[0] &= 0x7f
	b[0] |= 0x40
	return new(big.Int).SetBytes(b[:])
}

// certificate returns one for the host of that name.
func (a *authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if c := a.leaves[name]; c != nil && now.Before(c.Leaf.NotAfter.Add(-clockSkew)) {
		return c, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(),
		DNSNames:     []string{name}, // and no other subject: a common name has fewer characters
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
		clear(a.leaves) // a sandbox that asks for so many names waits a little
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: leaf}
	a.leaves[name] = c
	return c, nil
}
