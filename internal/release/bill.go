package release

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A bill is the bill of materials of a program, in the format of CycloneDX 1.5.
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// bill returns the bill of materials of a platform's program: the modules in its
// Go build information, and Go itself.
func (r *Release) bill(p Platform) ([]byte, error) {
	program, err := r.program(p)
	if err != nil {
		return nil, err
	}
	inspect := r.inspect
	if inspect == nil {
		inspect = buildinfo.Read
	}
	info, err := inspect(bytes.NewReader(program))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the program for %s has no build information: %w", p, err)
	}
	sum := sha256.Sum256(program)
	self := library(debug.Module{Path: info.Main.Path, Version: r.Version})
	self.Type = "application"
	self.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	b := bill{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{Timestamp: r.Time.Format(time.RFC3339), Component: self},
		Components: []component{library(debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, library(*m))
	}
	slices.SortFunc(b.Components, func(x, y component) int { return cmp.Compare(x.Ref, y.Ref) })
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "encode a bill of materials: %w", err)
	}
	return append(text, '\n'), nil
}

func library(m debug.Module) component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	return component{Type: "library", Ref: url, Name: m.Path, Version: m.Version, URL: url}
}
