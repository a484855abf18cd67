package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	gotoml "github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// toml is TOML, where a server is a table [key.name]. A parser finds the
// positions, and the changes are made in the text. The result is parsed again
// and compared: all other values must be unchanged.
type toml struct{}

func (toml) set(text []byte, key, name string, e entry) ([]byte, error) {
	newline := lineEnd(text)
	sec, err := findSection(text, key, name, replaced(e))
	if err != nil {
		return nil, err
	}
	fields, err := tomlFields(e, newline)
	if err != nil {
		return nil, err
	}
	var out []byte
	if sec.found() {
		// Glovebox's fields go directly below the header; the user's settings
		// stay below them.
		out = append(out, text[:sec.body]...)
		if !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, newline...)
		}
		out = append(out, fields...)
		at := sec.body
		for _, f := range sec.ours {
			out = append(out, text[at:f.from]...)
			at = f.to
		}
		out = append(out, text[at:]...)
	} else {
		out = append(out, text...)
		switch {
		case len(bytes.TrimSpace(out)) == 0:
		case !bytes.HasSuffix(out, []byte("\n")):
			out = append(out, newline+newline...)
		case !bytes.HasSuffix(out, []byte(newline+newline)):
			out = append(out, newline...)
		}
		out = append(out, "["+key+"."+tomlKey(name)+"]"+newline+fields...)
	}
	want := map[string]any{}
	if err := gotoml.Unmarshal([]byte(fields), &want); err != nil {
		return nil, err
	}
	before, was, err := apart(text, key, name)
	if err != nil {
		return nil, err
	}
	after, is, err := apart(out, key, name)
	if err != nil {
		return nil, errors.Join(err, errForm(key, name))
	}
	if settings, ok := was.(map[string]any); ok {
		for k, v := range settings {
			if !slices.ContainsFunc(sec.ours, func(f span) bool { return f.name == k }) {
				want[k] = v
			}
		}
	}
	switch {
	case reflect.DeepEqual(was, any(want)):
		return text, nil // equal, perhaps in other notation
	case !reflect.DeepEqual(before, after) || !reflect.DeepEqual(is, any(want)):
		return nil, errForm(key, name)
	}
	return out, nil
}

func (toml) remove(text []byte, key, name string) ([]byte, error) {
	sec, err := findSection(text, key, name, ours)
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(text[:sec.from])
	rest := text[sec.to:]
	if sec.found() {
		// Remove the empty line before the table, too.
		nl := []byte(lineEnd(text))
		switch {
		case len(out) == 0:
			rest = bytes.TrimPrefix(rest, nl)
		case len(rest) == 0 && bytes.HasSuffix(out, append(bytes.Clone(nl), nl...)):
			out = out[:len(out)-len(nl)]
		case bytes.HasSuffix(out, append(bytes.Clone(nl), nl...)):
			rest = bytes.TrimPrefix(rest, nl)
		}
	}
	out = append(out, rest...)
	before, _, err := apart(text, key, name)
	if err != nil {
		return nil, err
	}
	after, is, err := apart(out, key, name)
	if err != nil || is != nil || !reflect.DeepEqual(before, after) {
		return nil, errors.Join(err, errForm(key, name))
	}
	return out, nil
}

func errForm(key, name string) error {
	return fmt.Errorf("%s.%s has a form that cannot be changed alone; write it as a table [%[1]s.%[2]s]", key, name)
}

func lineEnd(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// tomlFields returns the fields of an entry as TOML.
func tomlFields(e entry, newline string) (string, error) {
	var b strings.Builder
	for _, f := range e {
		value, err := tomlValue(f.value)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s = %s%s", f.key, value, newline)
	}
	return b.String(), nil
}

// tomlValue returns a value as TOML. It uses JSON strings, which are valid TOML
// because marshal produces only escapes that TOML has.
func tomlValue(v any) (string, error) {
	var parts []string
	switch v := v.(type) {
	case []string:
		for _, s := range v {
			part, err := marshal(s)
			if err != nil {
				return "", err
			}
			parts = append(parts, string(part))
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	case entry:
		for _, f := range v {
			part, err := tomlValue(f.value)
			if err != nil {
				return "", err
			}
			parts = append(parts, tomlKey(f.key)+" = "+part)
		}
		return "{ " + strings.Join(parts, ", ") + " }", nil
	}
	value, err := marshal(v)
	return string(value), err
}

func tomlKey(name string) string {
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", r) {
			quoted, _ := marshal(name) // strings always encode
			return string(quoted)
		}
	}
	return name
}

// A section is the text of one table and its subtables. Comments and empty lines
// before the next table are not part of it.
type section struct {
	from, body, to int
	ours           []span // the lines in body with fields of Glovebox
}

type span struct {
	name     string
	from, to int
}

func (s section) found() bool { return s.from < s.to }

// findSection finds the table [key.name], and its fields with the names in ours.
func findSection(text []byte, key, name string, ours []string) (section, error) {
	var p unstable.Parser
	p.Reset(text)
	var s section
	inside, top := false, false
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			path, at := tablePath(e)
			mine := len(path) >= 2 && path[0] == key && path[1] == name
			top = mine && len(path) == 2
			switch {
			case !mine:
			case s.found() && !inside:
				return section{}, fmt.Errorf("the tables of %s.%s are not adjacent", key, name)
			case s.found() == top, e.Kind == unstable.ArrayTable && top:
				return section{}, errForm(key, name)
			case !s.found():
				s.from = bytes.LastIndexByte(text[:at], '\n') + 1
				s.body = endOfLine(text, at)
			}
			inside = mine
			if mine {
				s.to = endOfLine(text, at)
			}
		case unstable.KeyValue:
			if !inside {
				continue
			}
			first, last := int(e.Raw.Offset), int(e.Raw.Offset+e.Raw.Length)-1
			s.to = endOfLine(text, last)
			it := e.Key()
			if it.Next(); top && slices.Contains(ours, string(it.Node().Data)) {
				s.ours = append(s.ours, span{string(it.Node().Data), bytes.LastIndexByte(text[:first], '\n') + 1, s.to})
			}
		}
	}
	return s, p.Error()
}

// tablePath returns the names in a table's header, and the offset of the first.
func tablePath(e *unstable.Node) (path []string, at int) {
	for it := e.Key(); it.Next(); {
		if len(path) == 0 {
			at = int(it.Node().Raw.Offset)
		}
		path = append(path, string(it.Node().Data))
	}
	return path, at
}

func endOfLine(text []byte, at int) int {
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

// apart returns the values of text without key.name, and the value of key.name.
func apart(text []byte, key, name string) (rest map[string]any, server any, err error) {
	if err := gotoml.Unmarshal(text, &rest); err != nil {
		return nil, nil, err
	}
	servers, ok := rest[key].(map[string]any)
	if !ok {
		return rest, nil, nil
	}
	server = servers[name]
	delete(servers, name)
	if len(servers) == 0 {
		delete(rest, key)
	}
	return rest, server, nil
}
