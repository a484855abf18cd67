package image

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on an image's metadata.
const (
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxLayers   = 512
	// Every sandbox of the image starts with its environment.
	maxEnv = 64 << 10
)

// platform returns the platform that images must support.
func platform() v1.Platform {
	return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
}

// config reads an image's configuration.
func (s *Store) config(h v1.Hash) (*v1.ConfigFile, error) {
	data, err := os.ReadFile(s.blobPath(h))
	if err != nil {
		return nil, fmt.Errorf("read configuration of image: %w", err)
	}
	return parseConfig(data)
}

// parseConfig parses and checks a configuration.
func parseConfig(data []byte) (*v1.ConfigFile, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image's configuration is not readable: %w", err)
	}
	want := platform()
	if c.OS != "" && c.OS != want.OS || c.Architecture != "" && c.Architecture != want.Architecture {
		return nil, wrongPlatform([]string{c.OS + "/" + c.Architecture})
	}
	if len(c.RootFS.DiffIDs) > maxLayers {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers; the maximum is %d", len(c.RootFS.DiffIDs), maxLayers)
	}
	for what, texts := range map[string][]string{
		"environment": c.Config.Env, "entry point": c.Config.Entrypoint, "command": c.Config.Cmd,
		"user": {c.Config.User}, "working directory": {c.Config.WorkingDir},
	} {
		size := 0
		for _, t := range texts {
			size += len(t) + 1
			if strings.ContainsRune(t, 0) {
				return nil, sandbox.Errorf(sandbox.Invalid, "the image's %s has a zero byte", what)
			}
		}
		if size > maxEnv {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image's %s has %d bytes; the maximum is %d", what, size, maxEnv)
		}
	}
	for _, v := range c.Config.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image's environment has %s, which is not NAME=VALUE", quote(v))
		}
	}
	return c, nil
}

func wrongPlatform(has []string) error {
	want := platform()
	const most = 12
	if len(has) > most {
		has = append(has[:most:most], "…")
	}
	for i := range has {
		has[i] = strings.Trim(quote(has[i]), `"`)
	}
	return sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "the image is not for %s, but for %s", want.String(), strings.Join(has, ", ")),
		"use an image for %s", want.String())
}

// configOf returns the part of a configuration that sandboxes use.
func configOf(c *v1.ConfigFile) sandbox.ImageConfig {
	out := sandbox.ImageConfig{
		Env: c.Config.Env, User: c.Config.User, WorkDir: c.Config.WorkingDir,
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels,
	}
	for port := range c.Config.ExposedPorts {
		out.Ports = append(out.Ports, port)
	}
	slices.Sort(out.Ports)
	return out
}
