package config

import (
	"fmt"
	"path/filepath"
)

// Audit configures the record of security-relevant actions, which all processes of
// the state directory write.
type Audit struct {
	Enabled bool `yaml:"enabled"`
	// Dir is the directory of the record; "" is "audit" in the state directory.
	Dir string `yaml:"dir"`
	// FileSize is the size at which a file is closed and the next begins. Keep is how
	// many closed files stay. Zero is no limit.
	FileSize Bytes `yaml:"file_size"`
	Keep     int   `yaml:"keep"`
	// Required refuses actions that cannot be recorded.
	Required bool `yaml:"required"`
	// Syslog sends the records to the machine's system log, too.
	Syslog bool `yaml:"syslog"`
}

func (a *Audit) validate() error {
	if a.Dir != "" && !filepath.IsAbs(a.Dir) {
		return invalid("audit.dir", fmt.Sprintf("%q is not an absolute path", a.Dir), "write the whole path")
	}
	if a.FileSize < 0 || a.FileSize > 0 && a.FileSize < 1<<20 {
		return invalid("audit.file_size", "must be at least 1MiB", "write 0 for a single file")
	}
	if a.Keep < 0 {
		return invalid("audit.keep", "must not be negative", "write 0 to keep all files")
	}
	if a.Keep > 0 && a.FileSize == 0 {
		return invalid("audit.keep", "needs files of a limited size", "set audit.file_size")
	}
	if (a.Required || a.Syslog) && !a.Enabled {
		return invalid("audit.enabled", "is false, but audit.required or audit.syslog is set", "set audit.enabled to true")
	}
	return nil
}
