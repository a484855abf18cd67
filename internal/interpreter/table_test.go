package interpreter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kotlin = `
language: kotlin
aliases: [kt]
extension: kts
variants:
  - command: [kotlinc, -script, "{file}"]
    detect: [kotlinc, java]
package: kotlin
image: example/kotlin
`

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10-kotlin.yaml", kotlin)
	write("20-python.yml", "language: python\naliases: [py]\nextension: py\nkernel: ipython\nprepare: [numpy]\ninstaller: pip\nvariants:\n  - command: [pypy3, '{file}']\n---\nlanguage: zig\nextension: zig\nvariants: [{command: [zig, run, '{file}']}]\n")
	write("README", "not a runner")
	table, err := Runners().LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(table) != len(Runners())+2 {
		t.Errorf("%d languages", len(table))
	}
	r, err := table.Find("KT")
	if err != nil || r.Language != "kotlin" || r.Variants[0].Program() != "kotlinc" || r.Kernel != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = table.Find("py"); err != nil || r.Variants[0].Command[0] != "pypy3" || len(r.Prepare) != 1 || table[0].Language != "python" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Runners().Find("py"); err != nil || r.Variants[0].Command[0] != "python3" {
		t.Errorf("what is built in was changed: %+v, %v", r, err)
	}
	write("30-bad.yaml", "language: bad\nextensions: x\n")
	if _, err = Runners().LoadDir(dir); err == nil || !strings.Contains(err.Error(), "30-bad.yaml") || !strings.Contains(err.Error(), "extensions") {
		t.Errorf("a key that there is not: %v", err)
	}
	write("30-bad.yaml", strings.Repeat("#", maxRunnerFile+1))
	if _, err = Runners().LoadDir(dir); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a large file: %v", err)
	}
	if _, err = Runners().LoadDir(dir + "/none"); err == nil {
		t.Error("a directory that there is not")
	}
}

func TestOverrideRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"language: A\nextension: a\nvariants: [{command: [a]}]":                 "lower case",
		"language: a\nextension: ../a\nvariants: [{command: [a]}]":              "extension",
		"language: a\nextension: a":                                             "variants",
		"language: a\nextension: a\nvariants: [{detect: [a]}]":                  "no command",
		"language: a\nextension: a\nkernel: ruby\nvariants: [{command: [a]}]":   "kernel",
		"language: a\nextension: a\ninstaller: gem\nvariants: [{command: [a]}]": "installer",
		"language: a\naliases: [py]\nextension: a\nvariants: [{command: [a]}]":  `the name "py" is already`,
		"language: [a]":                         "",
		strings.Repeat("---\nlanguage: a\n", 3): "extension",
	} {
		if _, err := Runners().Override([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzOverride(f *testing.F) {
	f.Add([]byte(kotlin))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := Runners().Override(text)
		if err != nil {
			return
		}
		for _, r := range table {
			if got, err := table.Find(r.Language); err != nil || got.Language != r.Language || len(r.Variants) == 0 {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

func TestShebang(t *testing.T) {
	table := Runners()
	for code, want := range map[string]string{
		"#!/usr/bin/env python3\nprint(1)": "python",
		"#!/usr/bin/python3.12":            "python",
		"#! /bin/sh -e\n":                  "sh",
		"#!/usr/bin/env -S A=1 node --x\n": "javascript",
		"#!/bin/bash\r\n":                  "bash",
		"#!/usr/bin/env\n":                 "",
		"#!\n":                             "",
		"#!/opt/unknown\n":                 "",
		"print(1) #!/usr/bin/python3":      "",
		"":                                 "",
		"\n#!/usr/bin/python3":             "",
	} {
		if got, known := table.OfFile("script", code); got != want || (len(known) > 0) != (want == "") {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
	if got, _ := table.OfFile("a.js", "#!/bin/sh"); got != "javascript" {
		t.Errorf("the first line decides against the file's name: %q", got)
	}
}
