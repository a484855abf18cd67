// Package argument checks the arguments of a tool against its schema, and stores
// them in a struct. Errors name the argument and show its value.
//
// Only mcpserver imports it. It has no state.
package argument

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Decode checks arguments against a schema and stores them in in, a pointer to a
// struct. It also returns them by name. A null argument counts as absent. Errors wrap
// [sandbox.Invalid].
func Decode(s *jsonschema.Schema, args json.RawMessage, in any) (map[string]any, error) {
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	if !utf8.Valid(args) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "arguments: not valid UTF-8"),
			"send bytes that are not text in base64, with write_file")
	}
	given, err := byName(args)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, ok := s.Properties[name]
		if !ok {
			return given, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: there is no such argument", Show(name)),
				"the arguments are %s", JoinWords(slices.Sorted(maps.Keys(s.Properties))))
		}
		if err := check(p, name, given[name]); err != nil {
			return given, err
		}
	}
	for _, name := range s.Required {
		if _, ok := given[name]; !ok {
			return given, missing(name, s.Properties[name])
		}
	}
	if err := json.Unmarshal(args, in); err != nil {
		return given, sandbox.Errorf(sandbox.Invalid, "arguments: %w", err)
	}
	return given, nil
}

// missing returns the error for a required argument that is absent.
func missing(name string, s *jsonschema.Schema) error {
	if name == Sandbox {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "sandbox_id: missing; it is required, as %s", want(s)),
			"list_sandboxes lists sandboxes, and create_sandbox makes one")
	}
	return sandbox.Errorf(sandbox.Invalid, "%s: missing; it is required, as %s", name, want(s))
}

// Sandbox is the argument that names a sandbox, in every tool.
const Sandbox = "sandbox_id"

// byName returns the values of arguments, except null. It refuses an argument that
// is given twice: the check would see the last value, and the struct would get parts
// of all values.
func byName(args json.RawMessage) (map[string]any, error) {
	wrong := func() error {
		return sandbox.Errorf(sandbox.Invalid, "arguments: %s is not a JSON object of arguments by name", Show(args))
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, wrong()
	}
	values := map[string]any{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return nil, wrong()
		}
		if _, ok := values[name]; ok {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: given twice", Show(name))
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, wrong()
		}
		values[name] = v
	}
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	return values, nil
}

// check returns an error wrapping [sandbox.Invalid] if v does not match the
// schema. name is the position of v in the arguments. It supports those parts of
// JSON Schema that arguments of tools use.
func check(s *jsonschema.Schema, name string, v any) error {
	wrong := sandbox.Errorf(sandbox.Invalid, "%s: %s is not %s", name, Show(v), want(s))
	if len(s.AnyOf) > 0 {
		if slices.ContainsFunc(s.AnyOf, func(a *jsonschema.Schema) bool { return check(a, name, v) == nil }) {
			return nil
		}
		return wrong
	}
	switch v := v.(type) {
	case string:
		if s.Type != "string" || len(s.Enum) > 0 && !slices.Contains(s.Enum, any(v)) {
			return wrong
		}
	case bool:
		if s.Type != "boolean" {
			return wrong
		}
	case json.Number:
		return checkNumber(s, v, wrong)
	case []any:
		if s.Type != "array" {
			return wrong
		}
		for i, item := range v {
			if err := check(s.Items, name+"["+strconv.Itoa(i)+"]", item); err != nil {
				return err
			}
		}
	case map[string]any:
		if s.Type != "object" {
			return wrong
		}
		if len(s.Properties) > 0 {
			return checkObject(s, name, v)
		}
		// The other objects are maps from names to strings.
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if _, ok := v[k].(string); !ok {
				return sandbox.Errorf(sandbox.Invalid, "%s.%s: %s is not a string", name, k, Show(v[k]))
			}
		}
	default:
		return wrong
	}
	return nil
}

// checkObject checks an object with properties, which is an item of an argument.
func checkObject(s *jsonschema.Schema, name string, v map[string]any) error {
	maps.DeleteFunc(v, func(_ string, v any) bool { return v == nil })
	for _, k := range slices.Sorted(maps.Keys(v)) {
		p, ok := s.Properties[k]
		if !ok {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s.%s: there is no such property", name, k),
				"the properties are %s", JoinWords(slices.Sorted(maps.Keys(s.Properties))))
		}
		if err := check(p, name+"."+k, v[k]); err != nil {
			return err
		}
	}
	for _, k := range s.Required {
		if _, ok := v[k]; !ok {
			return missing(name+"."+k, s.Properties[k])
		}
	}
	return nil
}

func checkNumber(s *jsonschema.Schema, n json.Number, wrong error) error {
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

// want describes in words the values that a schema accepts.
func want(s *jsonschema.Schema) string {
	switch {
	case len(s.AnyOf) > 0:
		alternatives := make([]string, len(s.AnyOf))
		for i, a := range s.AnyOf {
			alternatives[i] = want(a)
		}
		return strings.Join(alternatives, " or ")
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			words[i] = fmt.Sprint(v)
		}
		return "one of " + JoinWords(words)
	case s.Type == "array":
		return "an array of which each item is " + want(s.Items)
	case len(s.Properties) > 0:
		return "an object of " + JoinWords(slices.Sorted(maps.Keys(s.Properties)))
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

// Show writes a value as JSON, truncated to 60 bytes.
func Show(v any) string {
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

// JoinWords writes "a, b and c".
func JoinWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
