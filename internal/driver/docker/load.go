package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LoadImages implements [driver.ImageKeeper].
func (d *Driver) LoadImages(ctx context.Context, from driver.ImageArchive, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	r := from.Reader
	if from.Path != "" {
		f, err := os.Open(from.Path)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.NotFound, "load images: %w", err)
		}
		defer f.Close()
		if fi, err := f.Stat(); err != nil || fi.IsDir() {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "load images: %s is a directory, and engines load files", from.Path),
				"pack it: tar -C %s -c . | glovebox images load -", from.Path)
		}
		r = f
	}
	if progress != nil {
		progress(sandbox.ImageProgress{Step: "unpack"})
	}
	resp, err := e.ImageLoad(ctx, r)
	if err != nil {
		return nil, sandbox.Wrap(e.explain(err), "load images", "")
	}
	defer resp.Close()
	names, err := loaded(resp)
	if err != nil {
		return nil, sandbox.Wrap(e.explain(err), "load images", "")
	}
	if from.Name != "" {
		if len(names) != 1 {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "load images: the archive has %d images, and one name", len(names)), "leave the name out")
		}
		name, _, err := imageName(from.Name)
		if err != nil {
			return nil, err
		}
		if _, err := e.ImageTag(ctx, client.ImageTagOptions{Source: names[0], Target: name}); err != nil {
			return nil, sandbox.Wrap(e.explain(err), "name image", name)
		}
		names[0] = name
	}
	var images []sandbox.Image
	for _, name := range names {
		i, err := d.Image(ctx, name)
		if err != nil {
			return nil, err
		}
		images = append(images, i)
	}
	return images, nil
}

// loaded returns the names of the loaded images, as the engine reports them.
func loaded(r io.Reader) ([]string, error) {
	const maxReply = 1 << 20
	dec := json.NewDecoder(io.LimitReader(r, maxReply))
	var names []string
	for {
		var m jsonstream.Message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(m.Stream) {
			// Podman reports several names, separated by commas.
			_, list, ok := strings.Cut(strings.TrimSpace(line), "Loaded image")
			if !ok {
				continue
			}
			_, list, _ = strings.Cut(list, ":")
			for name := range strings.SplitSeq(list, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name)
				}
			}
		}
	}
}

// registryAuth returns the credentials that docker login stored for the registry of
// an image, encoded for the engine. It is empty if there are none.
func (e *engine) registryAuth(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "image %q: %w", name, err)
	}
	server := reference.Domain(named)
	if server == "docker.io" {
		server = "https://index.docker.io/v1/"
	}
	var conf struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
		Store   string            `json:"credsStore"`
		Helpers map[string]string `json:"credHelpers"`
	}
	if err := readJSON(filepath.Join(e.configDir, "config.json"), &conf); err != nil {
		return "", err
	}
	var auth struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		ServerAddress string `json:"serveraddress"`
	}
	auth.ServerAddress = server
	helper := conf.Helpers[server]
	if helper == "" {
		helper = conf.Store
	}
	entry, ok := conf.Auths[server]
	switch {
	case helper != "" && !strings.ContainsAny(helper, `/\`):
		cmd := exec.Command("docker-credential-"+helper, "get")
		cmd.Stdin = strings.NewReader(server)
		out, err := cmd.Output()
		var said struct{ Username, Secret string }
		if err != nil || json.Unmarshal(out, &said) != nil {
			return "", nil // helpers fail if they have no credentials for a server
		}
		if auth.Username, auth.Password = said.Username, said.Secret; said.Username == "<token>" {
			auth.Username, auth.Password, auth.IdentityToken = "", "", said.Secret
		}
	case ok:
		text, err := base64.StdEncoding.DecodeString(entry.Auth)
		if err != nil {
			return "", nil
		}
		auth.Username, auth.Password, _ = strings.Cut(strings.TrimRight(string(text), "\x00"), ":")
		auth.IdentityToken = entry.IdentityToken
	default:
		return "", nil
	}
	text, err := json.Marshal(auth)
	return base64.URLEncoding.EncodeToString(text), err
}
