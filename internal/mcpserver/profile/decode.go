package profile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Typed returns a [Tool]'s Run that decodes arguments into an In. The schema's
// required arguments must be present. Unknown arguments are ignored, as the
// replaced servers do. Errors wrap [sandbox.Invalid] and name the argument. Typed
// panics if the schema, a constant, does not parse.
func Typed[In any](schema string, run func(context.Context, Call, In) (Result, error)) func(context.Context, Call, json.RawMessage) (Result, error) {
	var s struct {
		Required []string `json:"required"`
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		panic(fmt.Sprintf("profile: input schema: %v", err))
	}
	return func(ctx context.Context, c Call, args json.RawMessage) (Result, error) {
		var in In
		if err := decode(args, s.Required, &in); err != nil {
			return Result{}, err
		}
		return run(ctx, c, in)
	}
}

func decode(args json.RawMessage, required []string, in any) error {
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "arguments: not a JSON object of arguments by name")
	}
	for _, name := range required {
		if v, ok := given[name]; !ok || bytes.Equal(v, []byte("null")) {
			return Missing(name)
		}
	}
	err := json.Unmarshal(args, in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name := strings.TrimPrefix(wrong.Field, ".")
		return sandbox.Errorf(sandbox.Invalid, "%s: a %s is not %s", name, wrong.Value, kindOf(wrong))
	}
	if err != nil && sandbox.KindOf(err) != sandbox.Invalid { // an argument's own decoder has a better message
		return sandbox.Errorf(sandbox.Invalid, "arguments: %w", err)
	}
	return err
}

// kindOf returns the expected JSON type in words.
func kindOf(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "string":
		return "a string"
	case "bool":
		return "a boolean"
	case "slice":
		return "an array"
	case "map", "struct":
		return "an object"
	default:
		return "a number"
	}
}

// Missing returns the error for a missing argument, in the words of the replaced
// servers.
func Missing(name string) error { return sandbox.Errorf(sandbox.Invalid, "%s is required", name) }

// JSON returns v as a result in JSON, in the format of Python's servers: indented
// by two spaces, with as few escapes as possible.
func JSON(v any) (Result, error) { return encode(v, "  ") }

// CompactJSON is like JSON, but without white space.
func CompactJSON(v any) (Result, error) { return encode(v, "") }

func encode(v any, indent string) (Result, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return Result{}, fmt.Errorf("encode result: %w", err)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return Result{Texts: []string{text}, Structured: json.RawMessage(text)}, nil
}

// Explain returns an error's text with its hint. For an internal error it refers
// to the server's log instead.
func Explain(err error) string {
	text := err.Error()
	if sandbox.KindOf(err) == sandbox.Internal {
		text = "internal error; the server's log says how"
	}
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return text
}
