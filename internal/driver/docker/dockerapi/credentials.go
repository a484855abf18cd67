package dockerapi

import (
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
)

// Credentials returns the credentials that docker login stored for a registry, like
// docker.io, encoded for the container engine. They are empty if there are none.
func (e *Engine) Credentials(server string) (string, error) {
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
