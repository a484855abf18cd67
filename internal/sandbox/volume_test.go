package sandbox

import (
	"errors"
	"testing"
)

func TestParseVolume(t *testing.T) {
	for text, want := range map[string]Volume{
		"models:/mnt/models":    {Workspace: "models", Path: "/mnt/models"},
		"models:/mnt/models:ro": {Workspace: "models", Path: "/mnt/models", ReadOnly: true},
		"a:b c:/x":              {Workspace: "a:b c", Path: "/x"},
	} {
		if got, err := ParseVolume(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "models", ":/mnt", "models:mnt", "models:", "/mnt/models"} {
		if got, err := ParseVolume(text); !errors.Is(err, Invalid) || HintOf(err) == "" {
			t.Errorf("%q is %+v, %v; want invalid with a hint", text, got, err)
		}
	}
}
