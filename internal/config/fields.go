package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checkFields compares a document with the type of a value. The error names the
// line and the field, which the decoder's own errors do not.
func checkFields(n *yaml.Node, typ reflect.Type) error {
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) == 0 {
			return nil
		}
		n = n.Content[0]
	}
	return (&fieldCheck{root: typ}).check(n, typ, "")
}

type fieldCheck struct{ root reflect.Type }

// check compares a node with a type. path is the name of the node's field, with
// the fields above it.
func (c *fieldCheck) check(n *yaml.Node, typ reflect.Type, path string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case n.Kind == yaml.MappingNode && typ.Kind() == reflect.Struct:
		return c.checkMapping(n, typ, path)
	case n.Kind == yaml.SequenceNode && typ.Kind() == reflect.Slice:
		for i, item := range n.Content {
			if err := c.check(item, typ.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := n.Decode(reflect.New(typ).Interface()); err != nil {
		return fmt.Errorf("line %d: %s: %s", n.Line, path, valueError(n, typ, err))
	}
	return nil
}

func (c *fieldCheck) checkMapping(n *yaml.Node, typ reflect.Type, path string) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			continue
		}
		field, ok := fieldNamed(typ, key.Value)
		if !ok {
			return fmt.Errorf("line %d: unknown field %q%s", key.Line, strings.TrimPrefix(path+"."+key.Value, "."), c.suggestion(typ, path, key.Value))
		}
		if err := c.check(value, field.Type, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}

// valueError returns the message of an error about a value, without Go types.
func valueError(n *yaml.Node, typ reflect.Type, err error) string {
	if n.Kind != yaml.ScalarNode {
		return "must be a single value"
	}
	switch typ.Kind() {
	case reflect.Struct:
		return fmt.Sprintf("%q is a single value, and the field has fields of its own below it", n.Value)
	case reflect.Slice:
		return fmt.Sprintf("%q is a single value; write a list, like [%s]", n.Value, n.Value)
	case reflect.Bool:
		return fmt.Sprintf("%q is neither true nor false", n.Value)
	}
	if !strings.Contains(err.Error(), "cannot unmarshal") {
		return err.Error() // of a type that parses its own text
	}
	switch typ.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint16, reflect.Uint64:
		return fmt.Sprintf("%q is not a whole number", n.Value)
	case reflect.Float64:
		return fmt.Sprintf("%q is not a number", n.Value)
	}
	return fmt.Sprintf("%q is not a text", n.Value)
}

// fieldNamed returns the field of a struct with that name in YAML.
func fieldNamed(typ reflect.Type, name string) (reflect.StructField, bool) {
	for i := range typ.NumField() {
		if f := typ.Field(i); f.IsExported() && fieldName(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// suggestion returns the field that an unknown name probably means: one with a
// similar name in the same place, or else one with the same name elsewhere.
func (c *fieldCheck) suggestion(typ reflect.Type, path, name string) string {
	best, least := "", 3
	for i := range typ.NumField() {
		if other := fieldName(typ.Field(i)); other != "" {
			if d := distance(name, other); d < least {
				best, least = other, d
			}
		}
	}
	if best != "" {
		return "; did you mean " + strings.TrimPrefix(path+"."+best, ".") + "?"
	}
	if place := find(c.root, "", name); place != "" {
		return "; did you mean " + place + "?"
	}
	return ""
}

// find returns the path of the first field with that name, or "".
func find(typ reflect.Type, path, name string) string {
	for i := range typ.NumField() {
		f := typ.Field(i)
		at := strings.TrimPrefix(path+"."+fieldName(f), ".")
		if fieldName(f) == name {
			return at
		}
		if f.Type.Kind() == reflect.Struct {
			if found := find(f.Type, at, name); found != "" {
				return found
			}
		}
	}
	return ""
}

// distance returns the number of letters to insert, remove, replace or swap with
// their neighbour until a is b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0:
				rows[i][j] = j
				continue
			case j == 0:
				rows[i][j] = i
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
