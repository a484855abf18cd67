// Package release makes the files of a release from built programs. These are
// archives, bundles for MCP clients, bills of materials, checksums and the
// signed manifest that package update reads.
//
// Only cmd/glovebox-release imports it. Its output is reproducible: equal
// programs, texts, time and version give equal bytes on every machine. Only
// minisign's signatures differ, because they contain a random number.
package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"
	"golang.org/x/mod/semver"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/update"
)

// ChecksumsName is the file with the SHA-256 of every other file, in the format
// of sha256sum -c. Its signature is beside it.
const ChecksumsName = "checksums.txt"

// A Platform is a platform of a program, as GOOS and GOARCH.
type Platform struct{ OS, Arch string }

// Platforms returns the platforms of a release.
func Platforms() []Platform {
	var all []Platform
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, Platform{system, arch})
		}
	}
	return all
}

func (p Platform) String() string { return p.OS + "_" + p.Arch }

// program returns the file name of the program on the platform.
func (p Platform) program() string {
	if p.OS == "windows" {
		return "glovebox.exe"
	}
	return "glovebox"
}

func (p Platform) archive() string {
	if p.OS == "windows" {
		return "glovebox_" + p.String() + ".zip"
	}
	return "glovebox_" + p.String() + ".tar.gz"
}

// A Release describes the release to make.
type Release struct {
	// Version is the git tag, such as v1.2.3.
	Version string
	// Time is the modification time of every file and the time of publication.
	Time time.Time
	// Platforms are the platforms to make files for.
	Platforms []Platform
	// Programs is a directory with OS_ARCH/glovebox for each platform.
	Programs string
	// Source is the checkout. Its LICENSE and README.md go into the archives,
	// and its installers beside the archives.
	Source string
	// Out is the output directory. Existing deb and rpm packages there get
	// checksums, too.
	Out string
	// Key is the signing key.
	Key minisign.PrivateKey

	// inspect returns a program's build information; nil is [buildinfo.Read].
	inspect func(io.ReaderAt) (*debug.BuildInfo, error)
}

// Make makes the release. Errors are of kind Invalid for an invalid release, and
// Unavailable for files that cannot be read or written.
func (r *Release) Make() error {
	if !semver.IsValid(r.Version) || semver.Canonical(r.Version) != r.Version {
		return sandbox.Errorf(sandbox.Invalid, "version %q must be like v1.2.3", r.Version)
	}
	if r.Time.IsZero() || len(r.Platforms) == 0 {
		return sandbox.Errorf(sandbox.Invalid, "a release must have a time and platforms")
	}
	r.Time = r.Time.UTC().Truncate(time.Second)
	manifest := update.Manifest{Version: r.Version, Published: r.Time, Expires: r.Time.Add(update.Validity)}
	sums := map[string]string{} // of archives and bundles
	for _, p := range r.Platforms {
		data, err := r.archive(p)
		if err != nil {
			return err
		}
		if sums[p.archive()], err = r.write(p.archive(), data); err != nil {
			return err
		}
		manifest.Files = append(manifest.Files, update.File{
			OS: p.OS, Arch: p.Arch, Name: p.archive(), Size: int64(len(data)), SHA256: sums[p.archive()],
		})
		bill, err := r.bill(p)
		if err != nil {
			return err
		}
		if _, err := r.write("glovebox_"+p.String()+".cdx.json", bill); err != nil {
			return err
		}
	}
	for arch, platforms := range byArch(r.Platforms) {
		data, err := r.bundle(platforms)
		if err != nil {
			return err
		}
		if sums[bundleName(arch)], err = r.write(bundleName(arch), data); err != nil {
			return err
		}
	}
	for name, text := range map[string]func(map[string]string) ([]byte, error){
		"server.json": r.registryEntry, "glovebox.rb": r.formula,
	} {
		data, err := text(sums)
		if err != nil {
			return err
		}
		if _, err := r.write(name, data); err != nil {
			return err
		}
	}
	for _, name := range []string{"install.sh", "install.ps1"} {
		if err := r.installer(name); err != nil {
			return err
		}
	}
	return r.sign(manifest)
}

// Renew extends the validity of the manifest in Out to [update.Validity] after
// Time, and signs it again. Apart from checksums and signatures, it changes no
// other file. The errors are those of Make.
func (r *Release) Renew() error {
	text, err := r.read(filepath.Join(r.Out, update.ManifestName))
	if err != nil {
		return err
	}
	var manifest update.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: %w", update.ManifestName, err)
	}
	if r.Time.Before(manifest.Published) {
		return sandbox.Errorf(sandbox.Invalid, "time %s is before %s was published", r.Time.UTC().Format(time.RFC3339), manifest.Version)
	}
	r.Time = r.Time.UTC().Truncate(time.Second)
	manifest.Expires = r.Time.Add(update.Validity)
	return r.sign(manifest)
}

// program returns the program of a platform.
func (r *Release) program(p Platform) ([]byte, error) {
	return r.read(filepath.Join(r.Programs, p.String(), p.program()))
}

func (r *Release) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "read for the release: %w", err)
	}
	return data, nil
}

// write writes a file of the release and returns its SHA-256.
func (r *Release) write(name string, data []byte) (string, error) {
	path := filepath.Join(r.Out, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "write the release: %w", err)
	}
	if err := os.Chtimes(path, r.Time, r.Time); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "write the release: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// noKey is the placeholder for the key in the installers of the checkout.
const noKey = "RELEASE_KEY_GOES_HERE"

// installer writes an installer that contains the key of the release.
func (r *Release) installer(name string) error {
	text, err := r.read(filepath.Join(r.Source, name))
	if err != nil {
		return err
	}
	if n := bytes.Count(text, []byte(noKey)); n != 1 {
		return sandbox.Errorf(sandbox.Invalid, "%s has %s %d times; it must be there once", name, noKey, n)
	}
	key, err := PublicKey(r.Key)
	if err != nil {
		return err
	}
	_, err = r.write(name, bytes.Replace(text, []byte(noKey), []byte(key), 1))
	return err
}

// sign writes the manifest, the checksums of all files, and signatures of both.
func (r *Release) sign(manifest update.Manifest) error {
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "encode the manifest: %w", err)
	}
	text = append(text, '\n')
	if _, err := r.write(update.ManifestName, text); err != nil {
		return err
	}
	if _, err := r.write(update.SignatureName, update.Sign(text, r.Key)); err != nil {
		return err
	}
	sums, err := r.checksums()
	if err != nil {
		return err
	}
	if _, err := r.write(ChecksumsName, sums); err != nil {
		return err
	}
	_, err = r.write(ChecksumsName+".minisig", update.Sign(sums, r.Key))
	return err
}

// checksums lists every file in the directory, in order of name, except itself
// and signatures.
func (r *Release) checksums() ([]byte, error) {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "list the release: %w", err)
	}
	var b bytes.Buffer
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ChecksumsName) || strings.HasSuffix(e.Name(), ".minisig") {
			continue
		}
		data, err := r.read(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return b.Bytes(), nil
}

func byArch(platforms []Platform) map[string][]Platform {
	all := map[string][]Platform{}
	for _, p := range platforms {
		all[p.Arch] = append(all[p.Arch], p)
	}
	for _, same := range all {
		slices.SortFunc(same, func(a, b Platform) int { return strings.Compare(a.OS, b.OS) })
	}
	return all
}
