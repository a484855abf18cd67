//go:build unix

// Command test/compatibility runs the test suites of other projects, module by
// module. It makes a table of two runs: one in a sandbox and one on the host.
//
// test/compatibility.sh calls it. The program is static, so that the same file
// runs on the host and in a sandbox. It needs no network.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `usage:
	compatibility run [-root DIR] [-timeout T] [-logs DIR] SUITE [MODULE...]
	compatibility table -doc FILE -facts FILE -inside FILE -host FILE
	compatibility packages`

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "run":
		return runCommand(args[1:])
	case "table":
		return tableCommand(args[1:])
	case "packages":
		for _, name := range goPackages {
			fmt.Println(name)
		}
		return nil
	}
	return fmt.Errorf("there is no command %q\n%s", args[0], usage)
}

// runCommand runs one suite, and prints a line of JSON for each module.
func runCommand(args []string) error {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	root := f.String("root", ".", "`directory` with the suites, as test/compatibility.sh makes it")
	timeout := f.Duration("timeout", 4*time.Minute, "most time of one module")
	logs := f.String("logs", "", "keep the output of modules that do not pass in this `directory`")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	suite, err := suiteOf(f.Arg(0), dir)
	if err != nil {
		return err
	}
	// Tests inherit ignored signals, which a shell sets for background jobs. A
	// handler prevents that.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	modules := f.Args()[1:]
	if len(modules) == 0 {
		modules = suite.modules
	}
	out := json.NewEncoder(os.Stdout)
	for _, m := range modules {
		r, text, err := suite.run(m, *timeout)
		if err != nil {
			return err
		}
		r.Suite = suite.name
		if *logs != "" && r.Result != pass {
			if err := keepLog(*logs, suite.name, m, text); err != nil {
				return err
			}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func keepLog(dir, suite, module string, text []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, suite+"-"+filepath.Base(module)+".log"), text, 0o644)
}
