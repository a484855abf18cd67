package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A schema is the part of JSON Schema that the tools' arguments use. Each tool's
// file has its schemas as clients get them. This package parses them into this
// form to check arguments. So the error for a wrong argument can give its name,
// its value and the accepted values.
type schema struct {
	Type                 string             `json:"type"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	Enum                 []string           `json:"enum"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	Items                *schema            `json:"items"`
	AnyOf                []*schema          `json:"anyOf"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
}

// decode checks arguments against the schema and stores them in in, a pointer to
// a struct. A null argument counts as absent. Errors wrap [sandbox.Invalid].
func (s *schema) decode(args json.RawMessage, in any) error {
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	if !utf8.Valid(args) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "arguments: not valid UTF-8"),
			"send bytes that are not text in base64, with write_file")
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "arguments: %s is not a JSON object of arguments by name", show(args))
	}
	maps.DeleteFunc(v, func(_ string, v any) bool { return v == nil })
	for _, name := range slices.Sorted(maps.Keys(v)) {
		p, ok := s.Properties[name]
		if !ok {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: there is no such argument", show(name)),
				"the arguments are %s", joinWords(slices.Sorted(maps.Keys(s.Properties))))
		}
		if err := p.check(name, v[name]); err != nil {
			return err
		}
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return sandbox.Errorf(sandbox.Invalid, "%s: missing; it is required, as %s", name, s.Properties[name].want())
		}
	}
	clean, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode arguments: %w", err)
	}
	if err := json.Unmarshal(clean, in); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "arguments: %w", err)
	}
	return nil
}

// check returns an error wrapping [sandbox.Invalid] if v does not match the
// schema. name is the position of v in the arguments.
func (s *schema) check(name string, v any) error {
	wrong := sandbox.Errorf(sandbox.Invalid, "%s: %s is not %s", name, show(v), s.want())
	if len(s.AnyOf) > 0 {
		if slices.ContainsFunc(s.AnyOf, func(a *schema) bool { return a.check(name, v) == nil }) {
			return nil
		}
		return wrong
	}
	switch v := v.(type) {
	case string:
		if s.Type != "string" || len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			return wrong
		}
	case bool:
		if s.Type != "boolean" {
			return wrong
		}
	case json.Number:
		return s.checkNumber(v, wrong)
	case []any:
		if s.Type != "array" {
			return wrong
		}
		for i, item := range v {
			if err := s.Items.check(name+"["+strconv.Itoa(i)+"]", item); err != nil {
				return err
			}
		}
	case map[string]any:
		if s.Type != "object" {
			return wrong
		}
		// The only objects are maps from names to strings.
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if _, ok := v[k].(string); !ok {
				return sandbox.Errorf(sandbox.Invalid, "%s.%s: %s is not a string", name, k, show(v[k]))
			}
		}
	default:
		return wrong
	}
	return nil
}

func (s *schema) checkNumber(n json.Number, wrong error) error {
	f, err := n.Float64()
	if err != nil || s.Type != "integer" && s.Type != "number" {
		return wrong
	}
	if s.Type == "integer" {
		// 5.0 is an integer in JSON Schema, but a Go int cannot decode it. Accept
		// only plain integers.
		if _, err := n.Int64(); err != nil {
			return wrong
		}
	}
	if s.Minimum != nil && f < *s.Minimum || s.Maximum != nil && f > *s.Maximum {
		return wrong
	}
	return nil
}

// want describes in words the values that the schema accepts.
func (s *schema) want() string {
	switch {
	case len(s.AnyOf) > 0:
		alternatives := make([]string, len(s.AnyOf))
		for i, a := range s.AnyOf {
			alternatives[i] = a.want()
		}
		return strings.Join(alternatives, " or ")
	case len(s.Enum) > 0:
		return "one of " + joinWords(s.Enum)
	case s.Type == "array":
		return "an array of which each item is " + s.Items.want()
	case s.Type == "object":
		return "an object of names and strings"
	case s.Type != "integer" && s.Type != "number":
		return "a " + s.Type
	}
	w := map[string]string{"integer": "an integer", "number": "a number"}[s.Type]
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%s from %v to %v", w, *s.Minimum, int64(*s.Maximum))
	case s.Minimum != nil:
		return fmt.Sprintf("%s of at least %v", w, *s.Minimum)
	}
	return w
}

// show writes a value as JSON, truncated to 60 bytes.
func show(v any) string {
	const most = 60
	b, err := json.Marshal(v)
	if err != nil {
		return "the value"
	}
	if len(b) <= most {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:most]), "") + "…"
}

// joinWords writes "a, b and c".
func joinWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
