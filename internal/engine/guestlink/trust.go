package guestlink

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Files with the certificates that a sandbox trusts: the certificate of its
// network's authority, and all certificates together.
const (
	authorityFile = "/run/glovebox-trust/authority.pem"
	bundleFile    = "/run/glovebox-trust/all.pem"
)

// bundles are the usual files of the certificates that a system trusts.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",
}

// TrustEnv returns variables that make programs find the certificates of
// [Trust]. They are for programs that bring a list of their own, as many Python
// packages do.
func TrustEnv() map[string]string {
	return map[string]string{
		"SSL_CERT_FILE":       bundleFile, // OpenSSL, Python, Go, Ruby, uv, httpx
		"REQUESTS_CA_BUNDLE":  bundleFile, // requests, pip
		"PIP_CERT":            bundleFile,
		"CURL_CA_BUNDLE":      bundleFile,
		"GIT_SSL_CAINFO":      bundleFile,
		"AWS_CA_BUNDLE":       bundleFile,
		"CARGO_HTTP_CAINFO":   bundleFile,
		"NODE_EXTRA_CA_CERTS": authorityFile, // Node, npm, Bun
		"DENO_CERT":           authorityFile,
	}
}

// maxBundle bounds a system's list of certificates, in bytes.
const maxBundle = 2 << 20

// Trust makes the sandbox trust authorities, by their certificates in PEM. Those
// that it trusts already are not added again.
func Trust(ctx context.Context, g Guest, authority []byte, log *slog.Logger) error {
	system, all := "", []byte(nil)
	for _, path := range bundles {
		text, err := readRoot(ctx, g, path)
		if err != nil {
			return sandbox.Wrap(err, "read certificates", "")
		}
		if text != nil {
			system, all = path, text
			break
		}
	}
	if len(all) > 0 && !bytes.HasSuffix(all, []byte("\n")) {
		all = append(all, '\n')
	}
	for _, one := range bytes.SplitAfter(authority, []byte("-----END CERTIFICATE-----\n")) {
		if !bytes.Contains(all, one) {
			all = append(all, one...)
		}
	}
	for path, text := range map[string][]byte{authorityFile: authority, bundleFile: all} {
		if err := writeRoot(ctx, g, path, text); err != nil {
			return sandbox.Wrap(err, "install certificates", "")
		}
	}
	if system == "" {
		return nil
	}
	// Programs that were started without the environment read this file. If it
	// cannot be changed, they trust only the system's own certificates.
	if err := writeRoot(ctx, g, system, all); err != nil {
		log.Debug("the system's own certificates are as they were", "error", err)
	}
	return nil
}

// readRoot returns the contents of a system file, or nil if there is no such
// file.
func readRoot(ctx context.Context, g Guest, path string) ([]byte, error) {
	r, size, err := g.Read(ctx, path, 0, -1, guestapi.FileOptions{User: sandbox.Root})
	if sandbox.KindOf(err) == sandbox.NotFound && !driver.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxBundle {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s has %d bytes, more than %d", path, size, maxBundle)
	}
	return io.ReadAll(io.LimitReader(r, maxBundle))
}

func writeRoot(ctx context.Context, g Guest, path string, text []byte) error {
	_, err := g.Write(ctx, path, strings.NewReader(string(text)), guestapi.WriteOptions{User: sandbox.Root})
	return err
}
