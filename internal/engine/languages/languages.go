package languages

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// findVersions takes its parameters in groups of three: the number of a
// variant, its program, and the option that prints its version. If the program
// exists, it prints its path and the first lines of its output.
const findVersions = `while [ $# -gt 2 ]; do
	if where=$(command -v -- "$2"); then
		printf '\036%s\037%s\037' "$1" "$where"
		"$2" "$3" </dev/null 2>&1 | head -n 3
	fi
	shift 3
done`

var versionNumber = regexp.MustCompile(`\d+(?:\.\d+)+`)

// Missing returns the error for a language that a sandbox lacks, from the error
// for its image.
type Missing func(from func(image string) error) error

// List returns, for each runner, whether a sandbox has its language, with the
// version and the notable packages. It runs programs in the sandbox.
func List(ctx context.Context, g guestlink.Guest, runners interpreter.Table, missing Missing) ([]sandbox.Language, error) {
	args := []string{"/bin/sh", "-c", findVersions, "sh"}
	type place struct{ runner, variant int }
	var places []place
	for i, r := range runners {
		version := r.Version
		if version == "" {
			version = "--version"
		}
		for k, v := range r.Variants {
			args = append(args, strconv.Itoa(len(places)), v.Program(), version)
			places = append(places, place{i, k})
		}
	}
	said, _, err := guestlink.Capture(ctx, g, args)
	if err != nil {
		return nil, err
	}
	found := map[place][2]string{}
	for record := range bytes.SplitSeq(said, []byte{0x1e}) {
		f := bytes.SplitN(record, []byte{0x1f}, 3)
		if len(f) != 3 {
			continue
		}
		if n, err := strconv.Atoi(string(f[0])); err == nil && n >= 0 && n < len(places) {
			found[places[n]] = [2]string{excerpt.CleanLine(f[1]), string(versionNumber.Find(f[2]))}
		}
	}
	packages, err := packagesOf(ctx, g)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Language, 0, len(runners))
	for i, r := range runners {
		l := sandbox.Language{Name: r.Language, Aliases: r.Aliases, Contexts: r.Kernel != "", Installer: r.Installer}
		for k, v := range r.Variants {
			at, ok := found[place{i, k}]
			if !ok {
				continue
			}
			if len(v.Probe) > 0 {
				_, code, err := guestlink.Capture(ctx, g, v.Probe)
				if err != nil && !errors.Is(err, sandbox.NotFound) {
					return nil, err
				}
				if err != nil || code != 0 {
					continue
				}
			}
			l.Program, l.Version = at[0], at[1]
			l.Packages = packages[r.Installer]
			break
		}
		if l.Program == "" {
			l.Missing = sandbox.HintOf(missing(r.Missing))
		}
		list = append(list, l)
	}
	return list, nil
}

// packagesOf returns the notable packages in the sandbox, by installer.
func packagesOf(ctx context.Context, g guestlink.Guest) (map[string][]sandbox.Package, error) {
	out := map[string][]sandbox.Package{}
	for _, l := range interpreter.Listers() {
		if _, known := out[l.Installer]; known {
			continue
		}
		said, _, err := guestlink.Capture(ctx, g, l.Argv)
		if errors.Is(err, sandbox.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[l.Installer] = nil
		for line := range bytes.Lines(said) {
			f := strings.Fields(excerpt.CleanLine(line))
			if len(f) < 2 || !l.Notable(f[0], len(f) > 2) || len(out[l.Installer]) >= 200 {
				continue
			}
			out[l.Installer] = append(out[l.Installer], sandbox.Package{Name: f[0], Version: f[1]})
		}
		slices.SortFunc(out[l.Installer], func(a, b sandbox.Package) int { return strings.Compare(a.Name, b.Name) })
	}
	return out, nil
}

// WithImages adds the languages that only images support to the list of a sandbox
// with the image own. For a language that the sandbox lacks, it names a local
// image that has it. images has the image of each language.
func WithImages(list []sandbox.Language, own string, images map[string]string) []sandbox.Language {
	images = maps.Clone(images)
	for i, l := range list {
		if image := images[l.Name]; image != "" && l.Program == "" {
			list[i].Missing = "use the image " + image + ", which has it"
		}
		delete(images, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		l := sandbox.Language{Name: name}
		if images[name] == own {
			l.Program = "image " + own
		} else {
			l.Missing = "run it in a new sandbox, which has the image " + images[name]
		}
		list = append(list, l)
	}
	return list
}
