package clientconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// A format reads and writes one file format.
type format interface {
	// set returns text with the entry name below key. It replaces an existing
	// entry. text is nil or empty for a new file.
	set(text []byte, key, name string, e entry) ([]byte, error)
	// remove returns text without the entry.
	remove(text []byte, key, name string) ([]byte, error)
	// get returns the values of the entry, or nil if there is none.
	get(text []byte, key, name string) (map[string]any, error)
}

// An entry is a server in a file. Its fields are in the usual order. A value is
// a bool, a string, a []string or an entry.
type entry []field

type field struct {
	key   string
	value any
}

// MarshalJSON keeps the order of fields, which a map would lose.
func (e entry) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range e {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal encodes v as JSON without escaping <, > and &, because the output is
// not HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// byteOrderMark is at the start of files from some editors on Windows.
var byteOrderMark = []byte("\xef\xbb\xbf")

// jsonc is JSON with comments and trailing commas, or plain JSON.
type jsonc struct{}

func (jsonc) set(text []byte, key, name string, e entry) ([]byte, error) {
	doc, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	servers := doc.member(doc.root, key)
	if servers == nil {
		if servers, err = doc.add(doc.root, 1, key, []byte("{}")); err != nil {
			return nil, err
		}
	}
	obj, ok := servers.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", key)
	}
	value, err := marshal(e)
	if err != nil {
		return nil, err
	}
	if old := doc.member(obj, name); old != nil {
		before, err := meaning(*old)
		if err != nil {
			return nil, err
		}
		if err := doc.merge(old, value); err != nil {
			return nil, err
		}
		if after, err := meaning(*old); err != nil || before == after {
			return text, err
		}
		return doc.pack(), nil
	}
	if _, err := doc.add(obj, 2, name, value); err != nil {
		return nil, err
	}
	return doc.pack(), nil
}

func (jsonc) remove(text []byte, key, name string) ([]byte, error) {
	doc, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	servers := doc.member(doc.root, key)
	if servers == nil {
		return text, nil
	}
	obj, ok := servers.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", key)
	}
	if doc.member(obj, name) == nil {
		return text, nil
	}
	doc.drop(obj, name)
	// Glovebox probably made this object, because it is now empty.
	if len(obj.Members) == 0 && len(bytes.TrimSpace(obj.AfterExtra)) == 0 {
		doc.drop(doc.root, key)
	}
	return doc.pack(), nil
}

// A jsonFile is a parsed file that can be written back byte for byte.
type jsonFile struct {
	mark    []byte // a byte order mark, or nothing
	value   hujson.Value
	root    *hujson.Object
	newline string // "" if the file has one line
	indent  string
}

func parseJSON(text []byte) (*jsonFile, error) {
	doc := &jsonFile{newline: "\n", indent: "  "}
	body, hasMark := bytes.CutPrefix(text, byteOrderMark)
	if hasMark {
		doc.mark = byteOrderMark
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}\n")
	}
	v, err := hujson.Parse(body)
	if err != nil {
		return nil, err
	}
	root, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("the file does not begin with an object")
	}
	doc.value, doc.root = v, root
	if len(root.Members) > 0 {
		before := string(root.Members[0].Name.BeforeExtra)
		last := strings.LastIndexByte(before, '\n')
		switch {
		case !bytes.ContainsAny(bytes.TrimSpace(body), "\r\n"):
			doc.newline, doc.indent = "", ""
		case strings.Trim(before[last+1:], " \t") == "" && before[last+1:] != "":
			doc.indent = before[last+1:]
		}
	}
	if doc.newline != "" && bytes.Contains(body, []byte("\r\n")) {
		doc.newline = "\r\n"
	}
	return doc, nil
}

func (doc *jsonFile) pack() []byte { return append(slices.Clone(doc.mark), doc.value.Pack()...) }

// member returns the value of the last member of that name, or nil. JSON parsers
// use the last one.
func (doc *jsonFile) member(obj *hujson.Object, name string) *hujson.Value {
	for i, m := range slices.Backward(obj.Members) {
		if lit, ok := m.Name.Value.(hujson.Literal); ok && lit.String() == name {
			return &obj.Members[i].Value
		}
	}
	return nil
}

// add appends a member to obj. depth is the nesting depth of the members.
func (doc *jsonFile) add(obj *hujson.Object, depth int, name string, value []byte) (*hujson.Value, error) {
	key, err := marshal(name)
	if err != nil {
		return nil, err
	}
	laid, err := doc.layOut(value, depth)
	if err != nil {
		return nil, err
	}
	m := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: doc.line(depth), Value: hujson.Literal(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: laid},
	}
	if doc.newline == "" {
		m.Value.BeforeExtra = nil
	}
	if n := len(obj.Members); n > 0 {
		// Keep a trailing comma if there is one.
		m.Value.AfterExtra = obj.Members[n-1].Value.AfterExtra
		obj.Members[n-1].Value.AfterExtra = nil
	}
	// A comment before the brace may belong to the last member, so it must stay
	// with that member.
	own, rest := splitTrailing(obj.AfterExtra)
	m.Name.BeforeExtra = append(own, m.Name.BeforeExtra...)
	obj.AfterExtra = rest
	if !bytes.Contains(obj.AfterExtra, []byte("\n")) {
		obj.AfterExtra = append(obj.AfterExtra, doc.line(depth-1)...)
	}
	obj.Members = append(obj.Members, m)
	return &obj.Members[len(obj.Members)-1].Value, nil
}

// splitTrailing splits the text after a value into comments, which belong to the
// value, and the white space before the brace.
func splitTrailing(extra hujson.Extra) (own, rest hujson.Extra) {
	i := len(bytes.TrimRight(extra, " \t\r\n"))
	return slices.Clone(extra[:i]), slices.Clone(extra[i:])
}

// drop removes a member, with the white space before it.
func (doc *jsonFile) drop(obj *hujson.Object, name string) {
	for i := len(obj.Members) - 1; i >= 0; i-- {
		lit, ok := obj.Members[i].Name.Value.(hujson.Literal)
		if !ok || lit.String() != name {
			continue
		}
		gone := obj.Members[i]
		last := i == len(obj.Members)-1
		obj.Members = slices.Delete(obj.Members, i, i+1)
		comments := bytes.TrimRight(gone.Name.BeforeExtra, " \t\r\n")
		switch {
		case len(comments) > 0 && !last:
			next := &obj.Members[i].Name
			next.BeforeExtra = follow(comments, next.BeforeExtra)
		case len(comments) > 0:
			obj.AfterExtra = follow(comments, obj.AfterExtra)
		}
		if last && i > 0 {
			obj.Members[i-1].Value.AfterExtra = gone.Value.AfterExtra
		}
		if len(obj.Members) == 0 && len(bytes.TrimSpace(obj.AfterExtra)) == 0 {
			obj.AfterExtra = nil
		}
	}
}

// follow appends extra to comments. It ends the line of a last line comment.
func follow(comments []byte, extra hujson.Extra) hujson.Extra {
	out := slices.Clone(hujson.Extra(comments))
	if bytes.Contains(comments[bytes.LastIndexByte(comments, '\n')+1:], []byte("//")) && !bytes.HasPrefix(extra, []byte("\n")) && !bytes.HasPrefix(extra, []byte("\r\n")) {
		out = append(out, '\n')
	}
	return append(out, extra...)
}

// line starts a new line with the indentation of depth. It returns nil if the
// file has one line.
func (doc *jsonFile) line(depth int) hujson.Extra {
	if doc.newline == "" {
		return nil
	}
	return hujson.Extra(doc.newline + strings.Repeat(doc.indent, depth))
}

// layOut returns value with the file's indentation and line ends.
func (doc *jsonFile) layOut(value []byte, depth int) (hujson.ValueTrimmed, error) {
	if doc.newline != "" {
		var b bytes.Buffer
		if err := json.Indent(&b, value, strings.Repeat(doc.indent, depth), doc.indent); err != nil {
			return nil, err
		}
		value = bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(doc.newline))
	}
	v, err := hujson.Parse(value)
	return v.Value, err
}

// ours are the fields of an entry that define the connection to a server. All
// other fields are the user's settings, which stay when an entry is replaced.
var ours = []string{"type", "command", "args", "url", "serverUrl", "httpUrl", "headers", "bearer_token_env_var", "http_headers"}

// merge replaces the fields ours of old, an object, by the fields of value.
func (doc *jsonFile) merge(old *hujson.Value, value []byte) error {
	laid, err := doc.layOut(value, 2)
	if err != nil {
		return err
	}
	was, ok := old.Value.(*hujson.Object)
	if !ok {
		old.Value = laid
		return nil
	}
	for _, key := range ours {
		doc.drop(was, key)
	}
	is := laid.(*hujson.Object)
	// The user's settings replace the defaults of a new entry, such as enabled.
	is.Members = slices.DeleteFunc(is.Members, func(m hujson.ObjectMember) bool {
		lit, ok := m.Name.Value.(hujson.Literal)
		return ok && doc.member(was, lit.String()) != nil
	})
	if len(was.Members) > 0 {
		for i := range was.Members {
			if before := &was.Members[i].Name.BeforeExtra; !bytes.Contains(*before, []byte("\n")) {
				*before = append(bytes.TrimRight(*before, " \t"), doc.line(3)...)
			}
		}
		is.AfterExtra = was.AfterExtra
		if !bytes.Contains(is.AfterExtra, []byte("\n")) {
			is.AfterExtra = append(is.AfterExtra, doc.line(2)...)
		}
	} else if len(bytes.TrimSpace(was.AfterExtra)) > 0 {
		is.AfterExtra = was.AfterExtra
	}
	is.Members = append(is.Members, was.Members...)
	old.Value = is
	return nil
}

// meaning returns a normalised form of a value, for comparison.
func meaning(v hujson.Value) (string, error) {
	v = v.Clone()
	v.Standardize()
	var doc any
	if err := json.Unmarshal(v.Pack(), &doc); err != nil {
		return "", err
	}
	out, err := json.Marshal(doc)
	return string(out), err
}
