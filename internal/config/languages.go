package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Languages configures the runners and the package indexes.
type Languages struct {
	// Runners is a directory of YAML files with one language each. They override
	// the built-in runners. Empty is none.
	Runners string `yaml:"runners"`
	// PipIndex and NPMRegistry are URLs, and AptSource is a line of
	// sources.list. They replace the default indexes; empty is the default.
	PipIndex    string `yaml:"pip_index"`
	NPMRegistry string `yaml:"npm_registry"`
	AptSource   string `yaml:"apt_source"`
}

func (l *Languages) validate() error {
	if l.Runners != "" {
		if info, err := os.Stat(l.Runners); err != nil || !info.IsDir() {
			return invalid("languages.runners", fmt.Sprintf("%q is not a directory", l.Runners), "leave it out, or make the directory")
		}
	}
	for name, text := range map[string]string{"pip_index": l.PipIndex, "npm_registry": l.NPMRegistry} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" && u.Scheme != "file") {
			return invalid("languages."+name, fmt.Sprintf("%q is not a URL", text), "write it like https://mirror.example.com/simple")
		}
	}
	if l.AptSource != "" && (!strings.HasPrefix(l.AptSource, "deb ") || strings.ContainsAny(l.AptSource, "\n\r")) {
		return invalid("languages.apt_source", fmt.Sprintf("%q is not a line of sources.list", l.AptSource),
			"write it like deb https://mirror.example.com/debian bookworm main")
	}
	return nil
}

// Indexes returns the package indexes by the name of the package manager.
func (l *Languages) Indexes() map[string]string {
	return map[string]string{"pip": l.PipIndex, "npm": l.NPMRegistry, "apt": l.AptSource}
}
