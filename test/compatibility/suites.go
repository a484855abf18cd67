//go:build unix

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A suite is the test suite of one project.
type suite struct {
	name    string
	modules []string
	// run runs the tests of a module. It returns the result and the output.
	run func(module string, limit time.Duration) (result, []byte, error)
}

func suiteOf(name, root string) (suite, error) {
	s := suite{name: name}
	switch name {
	case "cpython":
		s.modules, s.run = cpythonModules, one(cpython(root), parseCPython)
	case "go":
		s.modules, s.run = goPackages, one(golang(root), parseGo)
	case "git":
		s.modules, s.run = gitScripts, one(git(root), parseTAP)
	case "node":
		s.modules, s.run = nodeGroups, node(root)
	default:
		return s, fmt.Errorf("there is no suite %q; there are cpython, node, go and git", name)
	}
	return s, nil
}

// one returns the run function of a suite with one program per module.
func one(of func(module string) program, parse func(out []byte, status int) result) func(string, time.Duration) (result, []byte, error) {
	return func(module string, limit time.Duration) (result, []byte, error) {
		began := time.Now()
		out, status, err := of(module).exec(limit)
		if err != nil {
			return result{}, nil, err
		}
		r := parse(out, status)
		if status < 0 {
			r.Result = timeout
		}
		r.Module, r.Status, r.Seconds = module, status, time.Since(began).Seconds()
		slices.Sort(r.Failed)
		r.Failed = slices.Compact(r.Failed)
		return r, out, nil
	}
}

// judge sets the result of a program from its exit status and its tests.
func judge(r result, status int) result {
	switch {
	case status != 0 || len(r.Failed) > 0:
		r.Result = fail
	case r.Tests == r.Skipped:
		r.Result = skip
	default:
		r.Result = pass
	}
	return r
}

func cpython(root string) func(string) program {
	usr := filepath.Join(root, "python", "usr")
	return func(module string) program {
		return program{
			argv: []string{filepath.Join(usr, "bin", "python3.11"), "-m", "test", "-v", module},
			dir:  root,
			env:  []string{"PYTHONHOME=" + usr, "PYTHONDONTWRITEBYTECODE=1"},
		}
	}
}

var (
	pythonRan     = regexp.MustCompile(`(?m)^Ran (\d+) tests? in `)
	pythonSkipped = regexp.MustCompile(`(?m)^(?:OK|FAILED) \(.*?skipped=(\d+)`)
	pythonFailed  = regexp.MustCompile(`(?m)^(?:FAIL|ERROR): (\S+) \((\S+)\)`)
)

// parseCPython parses the output of python -m test -v. A module without tests
// for this platform counts as skipped.
func parseCPython(out []byte, status int) result {
	var r result
	for _, m := range pythonRan.FindAllSubmatch(out, -1) {
		r.Tests += number(m[1])
	}
	for _, m := range pythonSkipped.FindAllSubmatch(out, -1) {
		r.Skipped += number(m[1])
	}
	for _, m := range pythonFailed.FindAllSubmatch(out, -1) {
		name, class := string(m[1]), string(m[2])
		// The class is test.test_os.FileTests.test_x, with or without "test.".
		class = strings.TrimSuffix(strings.TrimPrefix(class, "test."), "."+name)
		r.Failed = append(r.Failed, class+"."+name)
	}
	return judge(r, status)
}

func golang(root string) func(string) program {
	return func(pkg string) program {
		// The tests look for their data in the working directory.
		return program{
			argv: []string{filepath.Join(root, "go", strings.ReplaceAll(pkg, "/", "_")+".test"), "-test.v", "-test.short"},
			dir:  filepath.Join(root, "go", "src", pkg),
			env:  []string{"GOROOT=" + filepath.Join(root, "go"), "GO_BUILDER_NAME=", "GOTOOLCHAIN=local"},
		}
	}
}

var goEnded = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// parseGo parses the output of a Go test program with -test.v. Subtests are part
// of their test.
func parseGo(out []byte, status int) result {
	var r result
	for _, m := range goEnded.FindAllSubmatch(out, -1) {
		r.Tests++
		switch string(m[1]) {
		case "SKIP":
			r.Skipped++
		case "FAIL":
			r.Failed = append(r.Failed, string(m[2]))
		}
	}
	return judge(r, status)
}

func git(root string) func(string) program {
	dir := filepath.Join(root, "git", "t")
	return func(script string) program {
		tmp := cmp.Or(os.Getenv("TMPDIR"), "/tmp")
		return program{
			argv: []string{"/bin/sh", script + ".sh", "--root=" + filepath.Join(tmp, "trash")},
			dir:  dir,
			env:  []string{"TEST_OUTPUT_DIRECTORY=" + tmp, "GIT_TEST_CHAIN_LINT=0"},
		}
	}
}

var tapLine = regexp.MustCompile(`(?m)^(not )?ok (\d+)(.*)$`)

// parseTAP parses the output of git's test scripts. A known breakage is not a
// failure.
func parseTAP(out []byte, status int) result {
	var r result
	for _, m := range tapLine.FindAllSubmatch(out, -1) {
		text := strings.TrimPrefix(strings.TrimSpace(string(m[3])), "- ")
		r.Tests++
		switch {
		case strings.Contains(text, "# skip") || strings.Contains(text, "# SKIP"):
			r.Skipped++
		case len(m[1]) > 0 && !strings.Contains(text, "known breakage"):
			r.Failed = append(r.Failed, string(m[2])+" "+text)
		}
	}
	return judge(r, status)
}

// nodeTime is the timeout of one file of Node's tests.
const nodeTime = 30 * time.Second

// node returns the run function of Node's tests. Each file is a test, and the
// prefix of its name is the module.
func node(root string) func(string, time.Duration) (result, []byte, error) {
	dir := filepath.Join(root, "node")
	return func(group string, limit time.Duration) (result, []byte, error) {
		files, err := filepath.Glob(filepath.Join(dir, "test", "parallel", "test-"+group+`[\-.]*js`))
		if err != nil || len(files) == 0 {
			return result{}, nil, fmt.Errorf("no tests of Node for %q (%w)", group, err)
		}
		began := time.Now()
		r := result{Module: group}
		var log []byte
		for _, file := range files {
			flags, err := nodeFlags(file)
			if err != nil {
				return result{}, nil, err
			}
			p := program{
				argv: slices.Concat([]string{filepath.Join(dir, "bin", "node")}, flags, []string{file}),
				dir:  dir,
				env:  []string{"NODE_TEST_DIR=" + cmp.Or(os.Getenv("TMPDIR"), "/tmp")},
			}
			out, status, err := p.exec(min(nodeTime, limit))
			if err != nil {
				return result{}, nil, err
			}
			r.Tests++
			name := strings.TrimSuffix(filepath.Base(file), ".js")
			switch {
			case status != 0:
				r.Failed = append(r.Failed, name)
				log = fmt.Appendf(log, "==== %s: status %d\n%s\n", name, status, out[:min(len(out), 8<<10)])
			case strings.Contains(string(out), "1..0 # Skipped:"):
				r.Skipped++
			}
		}
		r.Seconds = time.Since(began).Seconds()
		return judge(r, 0), log, nil
	}
}

var nodeFlagLine = regexp.MustCompile(`(?m)^//\s*Flags:(.*)$`)

// nodeFlags returns the flags that a test file requests.
func nodeFlags(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var flags []string
	for _, m := range nodeFlagLine.FindAllSubmatch(text, -1) {
		flags = append(flags, strings.Fields(string(m[1]))...)
	}
	return flags, nil
}

// number converts digits to a number. A regular expression has matched the
// digits.
func number(digits []byte) int {
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		return 0
	}
	return n
}
