package app

import (
	"slices"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/coderunner"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestLanguagesOf(t *testing.T) {
	nowhere := interpreter.Runner{Language: "nowhere", Image: "nowhere:1", Variants: []interpreter.Variant{{Command: []string{"no-such-program"}}}}
	here := interpreter.Runner{Language: "here", Image: "here:1", Variants: []interpreter.Variant{{Command: []string{"/bin/sh"}}}}
	labelled := map[string]string{"odd": "odd:1"}
	for name, c := range map[string]struct {
		f    driver.Features
		want []coderunner.Language
	}{
		"host":   {driver.Features{Host: true}, []coderunner.Language{{Language: "odd", Image: "odd:1"}, {Language: "here", Image: sandbox.ImageHost}}},
		"images": {driver.Features{Images: true}, []coderunner.Language{{Language: "odd", Image: "odd:1"}, {Language: "nowhere", Image: "nowhere:1"}, {Language: "here", Image: "here:1"}}},
		// What is installed here is not there, and the other way round.
		"remote": {driver.Features{Host: true, Remote: true}, []coderunner.Language{{Language: "odd", Image: "odd:1"}, {Language: "nowhere", Image: sandbox.ImageHost}, {Language: "here", Image: sandbox.ImageHost}}},
	} {
		if got := languagesOf(c.f, interpreter.Table{nowhere, here}, labelled); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
