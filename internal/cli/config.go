package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/config"
)

// configCommand shows a sample of the configuration file, or the settings in
// force.
func (p *program) configCommand() *cobra.Command {
	effective := false
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration: a sample file, or the settings in force",
		Long: `Print a sample of the configuration file with all settings, their defaults and
their environment variables. With --effective, print the settings in force
instead, and the source of each: default, file, environment or flag.`,
		Example: `  glovebox config > ~/.config/glovebox/config.yaml
  glovebox config --effective`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !effective {
				return p.Print("%s", config.Sample)
			}
			return p.showConfig()
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "show the settings in force and their sources, not the sample")
	p.addJSON(cmd)
	usual := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		usual(cmd, args)
		_ = p.Print("\nThe sample:\n\n%s", config.Sample)
	})
	return cmd
}

func (p *program) showConfig() error {
	c, err := p.load()
	if err != nil {
		return err
	}
	settings, file, err := config.Effective(p.flags.config, p.Getenv, c)
	if err != nil {
		return err
	}
	if p.flags.json {
		return p.PrintJSON(struct {
			File     string           `json:"file"`
			Settings []config.Setting `json:"settings"`
		}{file, settings})
	}
	p.Say("configuration file: %s", cmp.Or(file, "none; "+cmp.Or(config.DefaultFile(p.Getenv), "its place needs a home directory")+" is not there"))
	rows := make([][]string, len(settings))
	for i, s := range settings {
		rows[i] = []string{s.Name, cmp.Or(s.Value, "-"), s.Source}
	}
	return p.PrintTable([]string{"SETTING", "VALUE", "SOURCE"}, rows)
}
