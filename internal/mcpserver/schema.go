package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
)

// takes completes a tool with its handler, whose arguments are a struct In. The
// tool's input schema comes from the struct: the names and types of its fields, and
// their descriptions in the tag jsonschema. A field without omitempty is required.
// The schema also has limits, which no tag can express. takes panics for a type that
// has no schema; every test would show that.
func takes[In any](t tool, more limits, run func(ctx context.Context, c call, in In) (*mcp.CallToolResult, error)) tool {
	s, err := argumentSchema[In](more)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: arguments of %s: %v", t.name, err))
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: arguments of %s: %v", t.name, err))
	}
	t.input = string(text)
	t.arguments = slices.Sorted(maps.Keys(s.Properties))
	t.run = func(ctx context.Context, c call, args json.RawMessage) (*mcp.CallToolResult, error) {
		var in In
		given, err := argument.Decode(s, args, &in)
		c.facts.named(given)
		if err != nil {
			return nil, err
		}
		return run(ctx, c, in)
	}
	return t
}

// limits restrict the values of arguments, by the name of the argument.
type limits map[string]func(*jsonschema.Schema)

// atLeast sets the smallest value of a number.
func atLeast(least float64) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) { s.Minimum = &least }
}

// between sets the smallest and the largest value of a number.
func between(least, most float64) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) { s.Minimum, s.Maximum = &least, &most }
}

// oneOf lists the accepted values of a text.
func oneOf(values ...string) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) {
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
	}
}

// textOrList accepts one text or a list of texts.
func textOrList(s *jsonschema.Schema) {
	s.AnyOf = []*jsonschema.Schema{{Type: "string"}, {Type: s.Type, Items: s.Items}}
	s.Type, s.Items = "", nil
}

// argumentSchema returns the input schema of a tool with arguments In.
func argumentSchema[In any](more limits) (*jsonschema.Schema, error) {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, err
	}
	// argument.Decode refuses other arguments. The schema does not say so, because all
	// schemas together have a budget.
	s.AdditionalProperties = nil
	if s.Properties == nil {
		s.Properties = map[string]*jsonschema.Schema{}
	}
	for _, p := range s.Properties {
		// A pointer or slice may be null. argument.Decode accepts null for every argument,
		// and the schema for none.
		if len(p.Types) > 0 {
			p.Type, p.Types = p.Types[len(p.Types)-1], nil
		}
		if p.Items != nil {
			p.Items.AdditionalProperties = nil
		}
	}
	for name, limit := range more {
		p := s.Properties[name]
		if p == nil {
			return nil, fmt.Errorf("there is no argument %q to limit", name)
		}
		limit(p)
	}
	return s, nil
}
