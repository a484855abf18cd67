package imagebuild

import (
	"fmt"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// words splits text at unquoted blanks, and keeps the quotes.
func words(text string) ([]string, error) {
	var all []string
	var word strings.Builder
	inside := false
	quote := byte(0)
	for n := 0; n < len(text); n++ {
		c := text[n]
		switch {
		case c == '\\' && quote != '\'' && n+1 < len(text):
			word.WriteByte(c)
			n++
			c, inside = text[n], true
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote, inside = c, true
		case c == ' ' || c == '\t':
			if inside {
				all = append(all, word.String())
				word.Reset()
			}
			inside = false
			continue
		default:
			inside = true
		}
		word.WriteByte(c)
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c has no end", quote)
	}
	if inside {
		all = append(all, word.String())
	}
	return all, nil
}

// pairs parses NAME=VALUE words, in order, and expands them. A text without "="
// is one name and its value, in the old syntax.
func pairs(text string, v variables) ([][2]string, error) {
	list, err := words(text)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(list[0], "=") {
		name, value, ok := strings.Cut(text, " ")
		if !ok {
			return nil, fmt.Errorf("%s has no value", shorten(name))
		}
		list = []string{name + "=" + strings.TrimSpace(value)}
	}
	var all [][2]string
	for _, w := range list {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("%s has no value", shorten(w))
		}
		if name, err = expand(name, v); err != nil {
			return nil, err
		}
		if name == "" {
			return nil, fmt.Errorf("%s has no name", shorten(w))
		}
		if value, err = expand(value, v); err != nil {
			return nil, err
		}
		all = append(all, [2]string{name, value})
	}
	return all, nil
}

// variables are the variables for expand.
type variables struct {
	lookup func(name string) (value string, ok bool)
	// room is the number of bytes of values that expand may still insert. Without
	// a bound, values that contain values would double with every line.
	room *int
}

// maxValues bounds the values that all expansions of a Dockerfile insert, in
// bytes.
const maxValues = 8 << 20

// expand removes quotes and replaces $NAME, ${NAME}, ${NAME:-else} and
// ${NAME:+instead}, with or without the colon. An unset name is empty.
func expand(text string, v variables) (string, error) {
	e := expander{text: text, variables: v}
	return e.until(0)
}

// maxDepth bounds the nesting of ${A:-${B:-…}}.
const maxDepth = 32

type expander struct {
	variables
	text  string
	at    int
	depth int
}

// take counts a value against room and returns it.
func (e *expander) take(value string) (string, error) {
	if *e.room -= len(value); *e.room < 0 {
		return "", fmt.Errorf("the values of variables have more than %d bytes in total", maxValues)
	}
	return value, nil
}

// until expands text up to the character end, which it consumes, or to the end of
// the text.
func (e *expander) until(end byte) (string, error) {
	if e.depth++; e.depth > maxDepth {
		return "", fmt.Errorf("%s is nested too deeply", shorten(e.text))
	}
	defer func() { e.depth-- }()
	var out strings.Builder
	double := false
	for e.at < len(e.text) {
		c := e.text[e.at]
		e.at++
		switch {
		case c == end && !double:
			return out.String(), nil
		case c == '\'' && !double:
			n := strings.IndexByte(e.text[e.at:], '\'')
			if n < 0 {
				return "", fmt.Errorf("the quote ' has no end")
			}
			out.WriteString(e.text[e.at : e.at+n])
			e.at += n + 1
		case c == '"':
			double = !double
		case c == '\\' && e.at < len(e.text):
			next := e.text[e.at]
			e.at++
			if double && !strings.ContainsRune(`"\$`, rune(next)) {
				out.WriteByte(c)
			}
			out.WriteByte(next)
		case c == '$':
			value, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(value)
		default:
			out.WriteByte(c)
		}
	}
	switch {
	case double:
		return "", fmt.Errorf(`the quote " has no end`)
	case end != 0:
		return "", fmt.Errorf("${ has no end")
	}
	return out.String(), nil
}

// variable expands the text after a dollar sign.
func (e *expander) variable() (string, error) {
	if e.at < len(e.text) && e.text[e.at] == '{' {
		e.at++
		return e.braced()
	}
	name := e.name()
	if name == "" {
		return "$", nil
	}
	value, _ := e.lookup(name)
	return e.take(value)
}

// name consumes and returns a variable's name.
func (e *expander) name() string {
	from := e.at
	for e.at < len(e.text) {
		c := e.text[e.at]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (e.at == from || c < '0' || c > '9') {
			break
		}
		e.at++
	}
	return e.text[from:e.at]
}

func (e *expander) braced() (string, error) {
	name := e.name()
	if name == "" || e.at >= len(e.text) {
		return "", fmt.Errorf("${ has no name and no end")
	}
	value, set := e.lookup(name)
	if e.text[e.at] == '}' {
		e.at++
		return e.take(value)
	}
	if e.text[e.at] == ':' {
		set = set && value != ""
		e.at++
	}
	op := byte(0)
	if e.at < len(e.text) {
		op = e.text[e.at]
		e.at++
	}
	other, err := e.until('}')
	switch {
	case op != '-' && op != '+':
		return "", fmt.Errorf("${%s has an operator that is not supported; use :- or :+", name)
	case err != nil:
		return "", err
	case set == (op == '+'):
		return other, nil
	case op == '+':
		return "", nil
	}
	return e.take(value)
}

// shorten cuts a text for an error.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
