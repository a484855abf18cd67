package sandbox

import "testing"

func TestMissesState(t *testing.T) {
	for _, tt := range []struct {
		e    RunError
		want bool
	}{
		{RunError{Name: "NameError", Value: "name 'df' is not defined"}, true},
		{RunError{Name: "ReferenceError", Value: "df is not defined"}, true},
		{RunError{Name: "FileNotFoundError", Value: "[Errno 2] No such file or directory: 'a.csv'"}, true},
		{RunError{Name: "Error", Value: "ENOENT: no such file or directory, open 'a.csv'"}, true},
		{RunError{Name: "ModuleNotFoundError", Value: "No module named 'pandas'"}, false},
		{RunError{Name: "Error", Value: "it says ENOENT"}, false},
		{RunError{}, false},
	} {
		if got := tt.e.MissesState(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.e, got, tt.want)
		}
	}
}

func TestMissesFile(t *testing.T) {
	for output, want := range map[string]bool{
		"cat: a.csv: No such file or directory\n": true, "Error: ENOENT: no such file or directory": true,
		"permission denied": false, "": false,
	} {
		if got := MissesFile(output); got != want {
			t.Errorf("%q: %v, want %v", output, got, want)
		}
	}
}
