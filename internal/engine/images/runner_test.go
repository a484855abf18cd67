package images

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestBestImage shows in which image a language runs of which there are several.
func TestBestImage(t *testing.T) {
	made, pulled, own, foreign := runnerOf("made", "1", "python", "javascript"), runnerOf("pulled", "2", "python", "javascript", "go"),
		runnerOf("own", "3", "python"), runnerOf("foreign", "4", "python")
	pulledOne := runnerOf("pulled-one", "5", "python")
	for name, c := range map[string]struct {
		list []ownedImage
		want string
	}{
		"none":                      {},
		"another's":                 {[]ownedImage{{foreign, foreignImage}, {foreign, unknownImage}}, ""},
		"of other languages":        {[]ownedImage{{runnerOf("x", "6", "go"), operatorMade}}, ""},
		"own":                       {[]ownedImage{{foreign, foreignImage}, {own, ownImage}}, "own"},
		"operator's before own":     {[]ownedImage{{own, ownImage}, {pulled, operatorFetched}}, "pulled"},
		"made here before all":      {[]ownedImage{{own, ownImage}, {foreign, foreignImage}, {pulledOne, operatorFetched}, {made, operatorMade}}, "made"},
		"of one language of equals": {[]ownedImage{{pulled, operatorFetched}, {pulledOne, operatorFetched}}, "pulled-one"},
	} {
		got, ok := bestImage(c.list, "python")
		if got.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t; want %q", name, got.Name, ok, c.want)
		}
	}
}

// runnerOf returns an image that says of itself that it runs languages.
func runnerOf(name, id string, languages ...string) sandbox.Image {
	return sandbox.Image{Name: name, ID: id, Config: sandbox.ImageConfig{
		Entrypoint: []string{"cat"},
		Labels:     map[string]string{"sandbox.runner": "true", "glovebox.languages": strings.Join(languages, " ")},
	}}
}
