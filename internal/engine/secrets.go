package engine

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkSecrets returns an error if the secrets are invalid, or if the driver or
// MaxNetwork leaves no use for them.
func (o *Options) checkSecrets(info driver.Info) error {
	if len(o.Secrets) == 0 {
		return nil
	}
	if err := sandbox.CheckSecrets(o.Secrets); err != nil {
		return err
	}
	if !info.Features.Network {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s has no network to put secrets into", info.Name),
			"use another driver: glovebox doctor lists them")
	}
	for _, s := range o.Secrets {
		if err := s.Hosts.Within(o.MaxNetwork); err != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %s: %w", s.Name, err), "%s", sandbox.HintOf(err))
		}
	}
	return nil
}

// secretsOf returns the secrets that p's sandboxes with that network use.
func (e *Engine) secretsOf(p sandbox.Principal, n sandbox.Network) []sandbox.Secret {
	if n == sandbox.NetworkNone || n == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.opts.Secrets), func(s sandbox.Secret) bool { return !s.UsedBy(p) })
}

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

// trustEnv makes programs find the certificates. It is for programs that bring
// a list of their own, as many Python packages do.
var trustEnv = map[string]string{
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

// secretEnv returns additional variables for p's sandboxes with that network:
// the placeholders of their secrets, and the variables that make programs trust
// the network's authority.
func (e *Engine) secretEnv(p sandbox.Principal, n sandbox.Network) map[string]string {
	env := map[string]string{}
	for _, s := range e.secretsOf(p, n) {
		env[s.Name] = s.Placeholder()
	}
	if len(env) > 0 {
		for name, value := range trustEnv {
			env[name] = value
		}
	}
	return env
}

// maxBundle bounds a system's list of certificates, in bytes.
const maxBundle = 2 << 20

// installAuthority makes the sandbox trust the authority that signs for the
// hosts of its secrets.
func (b *liveSandbox) installAuthority(ctx context.Context) error {
	if len(b.e.secretsOf(b.rec.Principal, b.rec.Network)) == 0 {
		return nil
	}
	authority, err := driver.ReadAuthority(ctx, b.drv)
	if err != nil {
		return err
	}
	if len(authority) == 0 {
		return sandbox.Errorf(sandbox.Internal, "the sandbox's network does not say who signs for its secrets")
	}
	system, all := "", []byte(nil)
	for _, path := range bundles {
		text, err := b.readRoot(ctx, path)
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
	all = append(all, authority...)
	for path, text := range map[string][]byte{authorityFile: authority, bundleFile: all} {
		if err := b.writeRoot(ctx, path, text); err != nil {
			return sandbox.Wrap(err, "install certificates", "")
		}
	}
	if system == "" {
		return nil
	}
	// Programs that were started without the environment read this file. If it
	// cannot be changed, they trust only the system's own certificates.
	if err := b.writeRoot(ctx, system, all); err != nil {
		b.e.log.Debug("the system's own certificates are as they were", "sandbox", b.id, "error", err)
	}
	return nil
}

// readRoot returns the contents of a system file, or nil if there is no such
// file.
func (b *liveSandbox) readRoot(ctx context.Context, path string) ([]byte, error) {
	r, size, err := b.guest.Read(ctx, path, 0, -1, guestapi.FileOptions{User: sandbox.Root})
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

func (b *liveSandbox) writeRoot(ctx context.Context, path string, text []byte) error {
	_, err := b.guest.Write(ctx, path, strings.NewReader(string(text)), guestapi.WriteOptions{User: sandbox.Root})
	return err
}
