// Command glovebox-release makes the files of a release. release/build.sh
// builds the programs and calls it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/release"
)

const usage = `usage: glovebox-release COMMAND
  new-key                 print a new private key, without a password
  public-key              print the public part of the private key
  make [flags] [OS_ARCH...]
                          make the release; all platforms, if none is named
  renew -out DIRECTORY    announce the release there again, before it expires
The private key is minisign's, in GLOVEBOX_RELEASE_KEY, its password in
GLOVEBOX_RELEASE_PASSWORD, and the time in SOURCE_DATE_EPOCH`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "glovebox-release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "new-key":
		key, err := release.NewKey()
		if err != nil {
			return err
		}
		_, err = out.Write(key)
		return err
	case "public-key":
		key, err := release.ReadKey([]byte(os.Getenv("GLOVEBOX_RELEASE_KEY")), os.Getenv("GLOVEBOX_RELEASE_PASSWORD"))
		if err != nil {
			return err
		}
		text, err := release.PublicKey(key)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, text)
		return err
	case "make":
		return makeRelease(args[1:])
	case "renew":
		return renewRelease(args[1:])
	default:
		return errors.New(usage)
	}
}

func makeRelease(args []string) error {
	var r release.Release
	flags := flag.NewFlagSet("make", flag.ContinueOnError)
	flags.StringVar(&r.Version, "version", "", "version, like v1.2.3")
	flags.StringVar(&r.Programs, "programs", "", "directory with OS_ARCH/glovebox")
	flags.StringVar(&r.Source, "source", ".", "the checkout")
	flags.StringVar(&r.Out, "out", "", "directory to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := fromEnvironment(&r); err != nil {
		return err
	}
	r.Platforms = release.Platforms()
	if flags.NArg() > 0 {
		r.Platforms = nil
	}
	for _, name := range flags.Args() {
		system, arch, ok := strings.Cut(name, "_")
		if !ok {
			return fmt.Errorf("%q is not a platform like linux_amd64", name)
		}
		r.Platforms = append(r.Platforms, release.Platform{OS: system, Arch: arch})
	}
	return r.Make()
}

func renewRelease(args []string) error {
	var r release.Release
	flags := flag.NewFlagSet("renew", flag.ContinueOnError)
	flags.StringVar(&r.Out, "out", "", "directory of the release")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := fromEnvironment(&r); err != nil {
		return err
	}
	return r.Renew()
}

// fromEnvironment sets the time and the key of a release.
func fromEnvironment(r *release.Release) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.Time = time.Unix(seconds, 0)
	r.Key, err = release.ReadKey([]byte(os.Getenv("GLOVEBOX_RELEASE_KEY")), os.Getenv("GLOVEBOX_RELEASE_PASSWORD"))
	return err
}
