package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
)

// version is set by the linker, from version control; see Makefile.
var version string

// Version returns the version of this program. It is the linker's value, or else
// the version of the module or the repository, for a program from go install or
// go build.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision + modified
}

// versionLine returns the version in a readable line.
func versionLine() string {
	return fmt.Sprintf("glovebox %s (%s, %s/%s)\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (p *program) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := struct {
				Version  string   `json:"version"`
				Go       string   `json:"go"`
				Platform string   `json:"platform"`
				Drivers  []string `json:"drivers"`
			}{Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, app.DriverNames()}
			if p.flags.json {
				return p.PrintJSON(info)
			}
			_, err := fmt.Fprint(p.Out, versionLine())
			return err
		},
	}
	p.addJSON(cmd)
	return cmd
}
