// Package update replaces the running program by a newer release.
//
// A manifest announces a release. It names each file with its SHA-256, and is
// signed with a key that the program contains. So the download server need not
// be trusted. Invalid or truncated files and rollbacks to an older manifest are
// refused, and the program stays unchanged. The new program must start and
// report its own version before and after the replacement; otherwise the old
// program is restored.
//
// Only the command line imports this package. It keeps a file in the state
// directory with the last manifest's version, and no other state between calls.
package update

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"aead.dev/minisign"
	"golang.org/x/mod/semver"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// DefaultURL is the base URL of the newest release's files.
const DefaultURL = "https://github.com/glovebox-dev/glovebox/releases/latest/download/"

// Names of the manifest and its signature, below the URL. The signature is
// minisign's.
const (
	ManifestName  = "manifest.json"
	SignatureName = "manifest.json.minisig"
)

// Limits on the size of files, in bytes.
const (
	maxManifest = 1 << 20
	maxArchive  = 512 << 20
	maxProgram  = 1 << 30
)

// downloadTime is the timeout of one download.
const downloadTime = 10 * time.Minute

// A Manifest announces a release.
type Manifest struct {
	Version   string    `json:"version"` // the git tag, such as v1.2.3
	Published time.Time `json:"published"`
	// Expires is the end of the manifest's validity. The maintainers must
	// publish the manifest again before then, unless there is a newer release.
	Expires time.Time `json:"expires,omitzero"`
	Files   []File    `json:"files"`
}

// Validity is the validity of a manifest. Without an expiry, an attacker could
// serve an old signed manifest forever, to hide newer releases.
const Validity = 180 * 24 * time.Hour

// ErrExpired is wrapped by errors about a manifest that has expired.
var ErrExpired = sandbox.Errorf(sandbox.Invalid, "the announcement of the newest release has expired")

// expires returns the end of m's validity. Older manifests have no field for it.
func (m *Manifest) expires() time.Time {
	if m.Expires.IsZero() {
		return m.Published.Add(Validity)
	}
	return m.Expires
}

// A File is a release's archive for one platform. It contains the program, named
// glovebox or glovebox.exe.
type File struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// An Updater updates one program.
type Updater struct {
	// Current is the version of the program at Path, for OS and Arch.
	Current, Path, OS, Arch string
	// Keys are the public keys, in minisign's format. One of them must have
	// signed.
	Keys []string
	// URL is the base URL of the files; DefaultURL if empty.
	URL string
	// StateDir is the directory of the file with the last seen manifest.
	StateDir string
	// Client makes requests; nil is a client with the proxy of the environment.
	Client *http.Client
	// Version starts the program at path and returns its version.
	Version func(ctx context.Context, path string) (string, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// A Status is the result of a search for releases.
type Status struct {
	Current string `json:"current"`
	Latest  string `json:"latest"`
	// Newer is true if Latest is newer than Current.
	Newer bool `json:"newer"`
}

// Check looks for a newer release. The error is of kind Unsupported for a
// program without release keys, and Unavailable if there is no answer. It is of
// kind Invalid for an untrusted answer, and wraps [ErrExpired] if the manifest
// has expired.
func (u *Updater) Check(ctx context.Context) (Status, error) {
	_, status, err := u.check(ctx, false)
	return status, err
}

// check is Check. If expired is set, it accepts an expired manifest.
func (u *Updater) check(ctx context.Context, expired bool) (*Manifest, Status, error) {
	if len(u.Keys) == 0 {
		return nil, Status{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "this program was built from source and has no key of releases"),
			"build it again from new sources: git pull and make build, or go install")
	}
	m, err := u.manifest(ctx)
	if err != nil {
		return nil, Status{}, err
	}
	if err := u.remember(m); err != nil {
		return nil, Status{}, err
	}
	if end := m.expires(); !expired && u.now().After(end) {
		return nil, Status{}, sandbox.WithHint(fmt.Errorf("%w: %s was announced %s, the announcement expired %s, and today is %s", ErrExpired,
			m.Version, m.Published.Format(time.DateOnly), end.Format(time.DateOnly), u.now().Format(time.DateOnly)),
			"check the clock of this machine; an attacker may also hide newer releases;\nif there is no newer release, use glovebox update --force")
	}
	return m, Status{
		Current: u.Current,
		Latest:  m.Version,
		Newer:   !semver.IsValid(u.Current) || semver.Compare(m.Version, u.Current) > 0,
	}, nil
}

// development matches versions of git describe between releases.
var development = regexp.MustCompile(`-[0-9]+-g[0-9a-f]{7,}|dirty`)

// Update replaces the program by the newest release. It does nothing if that is
// the current version. force allows an older release, an expired manifest, and
// the replacement of a development build.
//
// The errors are those of Check. They are of kind Conflict for a program that a
// package manager owns, a development build or an older release. They are of kind
// Unavailable if a file cannot be fetched or written. On error, the program is
// unchanged, unless the old program could not be put back.
func (u *Updater) Update(ctx context.Context, force bool) (Status, error) {
	path, err := filepath.EvalSymlinks(u.Path)
	if err != nil {
		return Status{}, sandbox.Errorf(sandbox.Unavailable, "find the program: %w", err)
	}
	if err := unmanaged(path, u.OS, exists); err != nil {
		return Status{}, err
	}
	if !force && (!semver.IsValid(u.Current) || development.MatchString(u.Current)) {
		return Status{}, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "version %s is a development build", u.Current),
			"use glovebox update --force to install the newest release")
	}
	m, status, err := u.check(ctx, force)
	if err != nil {
		return status, err
	}
	switch {
	case m.Version == u.Current:
		return status, nil
	case !status.Newer && !force:
		return status, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the newest release is %s, older than this program, %s", m.Version, u.Current),
			"use glovebox update --force to go back to it")
	}
	file, err := m.file(u.OS, u.Arch)
	if err != nil {
		return status, err
	}
	return status, u.install(ctx, path, m.Version, file)
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// unmanaged returns an error for a program that a package manager owns.
func unmanaged(path, system string, exists func(string) bool) error {
	slashed := strings.ReplaceAll(path, `\`, "/")
	for _, m := range []struct{ marks, who, how string }{
		{"/Cellar/ /homebrew/ /linuxbrew/", "Homebrew", "brew upgrade glovebox"},
		{"/nix/store/", "Nix", "update it with Nix"},
		{"/snap/", "snap", "snap refresh glovebox"},
		{"/scoop/apps/", "Scoop", "scoop update glovebox"},
		{"/WinGet/Packages/", "WinGet", "winget upgrade glovebox"},
	} {
		for _, mark := range strings.Fields(m.marks) {
			if strings.Contains(slashed, mark) {
				return managedBy(path, m.who, m.how)
			}
		}
	}
	if system != "linux" {
		return nil
	}
	for list, how := range map[string]string{
		"/var/lib/dpkg/info/glovebox.list":  "apt-get install --only-upgrade glovebox",
		"/usr/share/doc/glovebox/installed": "update it with the system's package manager",
	} {
		if strings.HasPrefix(path, "/usr/bin/") && exists(list) {
			return managedBy(path, "a package manager", how)
		}
	}
	return nil
}

func managedBy(path, who, how string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "%s manages %s", who, path), "%s", how)
}

func (m *Manifest) file(system, arch string) (File, error) {
	for _, f := range m.Files {
		if f.OS == system && f.Arch == arch {
			return f, nil
		}
	}
	return File{}, sandbox.Errorf(sandbox.Unsupported, "release %s has nothing for %s/%s", m.Version, system, arch)
}

// manifest fetches the manifest. It checks the signature before it parses the
// text.
func (u *Updater) manifest(ctx context.Context) (*Manifest, error) {
	text, err := u.fetchSmall(ctx, ManifestName)
	if err != nil {
		return nil, err
	}
	signature, err := u.fetchSmall(ctx, SignatureName)
	if err != nil {
		return nil, err
	}
	signed := false
	for _, text64 := range u.Keys {
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(text64)); err != nil {
			return nil, sandbox.Errorf(sandbox.Internal, "this program's release key: %w", err)
		}
		signed = signed || minisign.Verify(key, text, signature)
	}
	if !signed {
		return nil, untrusted("its signature is not from a key of this program")
	}
	var m Manifest
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if err := dec.Decode(&m); err != nil {
		return nil, untrusted("the manifest: %w", err)
	}
	if !semver.IsValid(m.Version) || m.Published.IsZero() {
		return nil, untrusted("the manifest has version %q, published %s", m.Version, m.Published)
	}
	for _, f := range m.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || strings.ContainsAny(f.Name, `/\?#%`) || len(f.SHA256) != 2*sha256.Size || f.Size <= 0 || f.Size > maxArchive {
			return nil, untrusted("the manifest's file %q", f.Name)
		}
	}
	return &m, nil
}

func untrusted(format string, args ...any) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the release cannot be trusted: "+format, args...),
		"try again; if the error stays, an attacker may be changing the connection; nothing was changed")
}

// seen describes the last accepted manifest.
type seen struct {
	Version   string    `json:"version"`
	Published time.Time `json:"published"`
	Checked   time.Time `json:"checked"`
}

func (u *Updater) seenPath() string { return filepath.Join(u.StateDir, "update.json") }

// lastSeen returns the last accepted manifest, or zero if it is unknown.
func (u *Updater) lastSeen() (s seen) {
	data, err := os.ReadFile(u.seenPath())
	if err != nil || json.Unmarshal(data, &s) != nil {
		return seen{}
	}
	return s
}

// remember records m as the last accepted manifest. It refuses a manifest that is
// older than the recorded one, because that may be a rollback attack.
func (u *Updater) remember(m *Manifest) error {
	if last := u.lastSeen(); m.Published.Before(last.Published) {
		return untrusted("it was published %s, but the newer release %s of %s was seen before", m.Published.Format(time.DateOnly), last.Version, last.Published.Format(time.DateOnly))
	}
	data, err := json.Marshal(seen{Version: m.Version, Published: m.Published, Checked: u.now()})
	if err == nil {
		err = os.MkdirAll(u.StateDir, 0o700)
	}
	if err == nil {
		err = atomicfile.Replace(u.seenPath(), data, 0o600)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "record the newest release: %w", err)
	}
	return nil
}

func (u *Updater) now() time.Time {
	if u.Now != nil {
		return u.Now()
	}
	return time.Now()
}

// CheckedWithin reports whether there was a check within d, and its result.
func (u *Updater) CheckedWithin(d time.Duration) (Status, bool) {
	s := u.lastSeen()
	if age := u.now().Sub(s.Checked); age < 0 || age > d {
		return Status{}, false
	}
	return Status{Current: u.Current, Latest: s.Version, Newer: semver.Compare(s.Version, u.Current) > 0}, true
}

func (u *Updater) fetchSmall(ctx context.Context, name string) ([]byte, error) {
	body, err := u.get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxManifest+1))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "fetch %s: %w", name, err)
	}
	if len(data) > maxManifest {
		return nil, untrusted("%s is larger than %s", name, sandbox.FormatBytes(maxManifest))
	}
	return data, nil
}

// get opens a file of the release. The caller closes it.
func (u *Updater) get(ctx context.Context, name string) (io.ReadCloser, error) {
	base := u.URL
	if base == "" {
		base = DefaultURL
	}
	where, err := url.Parse(base)
	if err != nil || where.Host == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "update URL: %q is not a URL", base)
	}
	if where.Scheme != "https" && (where.Scheme != "http" || !sandbox.IsLoopback(where.Hostname())) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "update URL: %s is not an https URL", base), "use an https URL")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.JoinPath(name).String(), nil)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "update URL: %w", err)
	}
	client := u.Client
	if client == nil {
		client = &http.Client{Timeout: downloadTime}
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "fetch %s: %w", name, err), "check the network of this machine; set a proxy with HTTPS_PROXY")
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, sandbox.Errorf(sandbox.Unavailable, "fetch %s: %s answered %s", name, where.Host, res.Status)
	}
	return res.Body, nil
}

// download fetches a file of the release to dst, and checks size and hash.
func (u *Updater) download(ctx context.Context, f File, dst io.Writer) error {
	body, err := u.get(ctx, f.Name)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, sum), io.LimitReader(body, f.Size+1))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "fetch %s: %w", f.Name, err)
	}
	if n != f.Size {
		return sandbox.WithHint(untrusted("%s has at least %d bytes instead of %d", f.Name, n, f.Size), "try again; nothing was changed")
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, f.SHA256) {
		return untrusted("%s has SHA-256 %s instead of %s", f.Name, got, f.SHA256)
	}
	return nil
}

// Sign returns the signature of a manifest. Only the release tool uses it.
func Sign(manifest []byte, key minisign.PrivateKey) []byte {
	return minisign.SignWithComments(key, manifest, fmt.Sprintf("manifest of %d bytes", len(manifest)), "signature of a Glovebox release")
}
