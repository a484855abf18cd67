package dashboard

import "testing"

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"the sandbox has stopped":  "The sandbox has stopped",
		"main.py: no such file":    "main.py: no such file",
		"port: out of range":       "port: out of range",
		"ZeroDivisionError: by 0":  "ZeroDivisionError: by 0",
		"/data/x is not there":     "/data/x is not there",
		"élan is no letter of a-z": "élan is no letter of a-z",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
