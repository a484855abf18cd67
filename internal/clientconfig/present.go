package clientconfig

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// A Present is the entry of a server in a client's file.
type Present struct {
	Path string // of the file
	Args []string
	URL  string
	// Token is the bearer token in the file, or "". Variable is true if the file
	// names TokenVariable in its place.
	Token    string
	Variable bool
	// Approval is true if the entry says whether the client calls the tools without
	// asking.
	Approval bool
	// Exposed is true if the file has a token and other users of the machine can
	// read it.
	Exposed bool
}

// ToolPrefix returns the prefix that the entry gives to the names of tools, or "".
func (p Present) ToolPrefix() string {
	for i, arg := range p.Args {
		if v, ok := strings.CutPrefix(arg, "--tool-prefix="); ok {
			return v
		}
		if arg == "--tool-prefix" && i+1 < len(p.Args) {
			return p.Args[i+1]
		}
	}
	return ""
}

// Present returns the entry of that name, and whether there is one. The error is of
// kind Invalid if the file cannot be parsed.
func (c Client) Present(env Environment, scope Scope, name string) (Present, bool, error) {
	change, err := c.read(env, scope)
	if err != nil || change.Before == nil {
		return Present{}, false, err
	}
	values, err := c.format.get(change.Before, c.key, name)
	if err != nil || values == nil {
		return Present{}, false, c.explain(err, change.Path)
	}
	p := Present{Path: change.Path}
	if c.Approves() {
		_, p.Approval = values[c.approve.key]
	}
	for _, key := range []string{"url", "serverUrl", "httpUrl"} {
		if text, ok := values[key].(string); ok {
			p.URL = text
		}
	}
	for _, key := range []string{"command", "args"} { // opencode's command is a list
		list, _ := values[key].([]any)
		for _, v := range list {
			if text, ok := v.(string); ok {
				p.Args = append(p.Args, text)
			}
		}
	}
	for _, key := range []string{"headers", "http_headers"} {
		headers, _ := values[key].(map[string]any)
		text, _ := headers["Authorization"].(string)
		token, ok := strings.CutPrefix(text, "Bearer ")
		switch {
		case ok && strings.Contains(token, TokenVariable):
			p.Variable = true
		case ok && !strings.ContainsAny(token, "${}"):
			p.Token = token
		}
	}
	if values["bearer_token_env_var"] == TokenVariable {
		p.Variable = true
	}
	if p.Token != "" && runtime.GOOS != "windows" { // whose modes do not say who reads
		info, err := os.Stat(change.Path)
		p.Exposed = err == nil && info.Mode().Perm()&0o077 != 0
	}
	return p, true, nil
}

func (jsonc) get(text []byte, key, name string) (map[string]any, error) {
	doc, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	servers := doc.member(doc.root, key)
	if servers == nil {
		return nil, nil
	}
	obj, ok := servers.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", key)
	}
	server := doc.member(obj, name)
	if server == nil {
		return nil, nil
	}
	v := server.Clone()
	v.Standardize()
	values := map[string]any{}
	return values, json.Unmarshal(v.Pack(), &values)
}

func (toml) get(text []byte, key, name string) (map[string]any, error) {
	_, server, err := apart(text, key, name)
	values, _ := server.(map[string]any)
	return values, err
}

// replaced returns the fields of an existing entry that e replaces in TOML.
func replaced(e entry) []string {
	list := slices.Clone(ours)
	for _, f := range e {
		list = append(list, f.key)
	}
	return list
}
