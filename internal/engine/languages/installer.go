package languages

import (
	"cmp"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Installer returns the installer with that name, or else the installer of the
// language with that name. The error is of kind [sandbox.Unsupported] for a
// language that has none.
func Installer(name string, runners interpreter.Table) (interpreter.Installer, error) {
	name = cmp.Or(name, language.Default)
	if i, err := interpreter.FindInstaller(name); err == nil {
		return i, nil
	}
	runner, err := runners.Find(name)
	if err != nil {
		return interpreter.Installer{}, err
	}
	if runner.Installer == "" {
		return interpreter.Installer{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "language: packages of %s are not installed by this tool", runner.Language),
			"use run_command with the language's own package manager, or language apt for packages of Debian")
	}
	return interpreter.FindInstaller(runner.Installer)
}

// Reaches returns an error of kind [sandbox.Unsupported] unless the network of a
// sandbox lets the installer reach its package index. most is the most permissive
// network of the server.
func Reaches(i interpreter.Installer, index string, packages []string, network, most sandbox.Network) error {
	needs, err := i.Network(index, packages)
	if err != nil {
		return err
	}
	canonical, err := sandbox.ParseNetwork(string(network))
	if err != nil {
		return nil // the creation of the sandbox reports the error
	}
	if needs == sandbox.NetworkNone || needs.Within(canonical) == nil {
		return nil
	}
	how := fmt.Sprintf("make a new sandbox with network %q", needs)
	if needs.Within(most) != nil {
		how = fmt.Sprintf("this server lets no sandbox reach it: ask the operator to start it with --allow-network %s, then make a new sandbox with that network", needs)
	}
	return sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "network: %s must reach %s, and the sandbox's network is %s", i.Name, needs, canonical),
		"%s; what is in the sandbox already, list_languages tells", how)
}
