package jsonbound

import "testing"

func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `{}`: 1, `[{},{}]`: 4, `{"a":"[,{","b":1}`: 2, `"\",[\\",[`: 2, `"[`: 0,
		`"a,b[{"`: 0, `["a\"," , 2]`: 2, `{"a":[],"b":{"c\\":1}}`: 4,
	} {
		if got := Values([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
