package imagebuild

import (
	"fmt"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// words splits text where there is space that is not quoted, and leaves quotes
// as they are.
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

// pairs reads NAME=VALUE words, the values expanded, in their order. A text
// without any is one name and its value, as it once was written, if oldForm.
func pairs(text string, oldForm bool, lookup func(string) (string, bool)) ([][2]string, error) {
	list, err := words(text)
	if err != nil {
		return nil, err
	}
	if oldForm && !strings.Contains(list[0], "=") {
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
		if name, err = expand(name, lookup); err != nil {
			return nil, err
		}
		if name == "" {
			return nil, fmt.Errorf("%s has no name", shorten(w))
		}
		if value, err = expand(value, lookup); err != nil {
			return nil, err
		}
		all = append(all, [2]string{name, value})
	}
	return all, nil
}

// expand takes quotes away and puts values in the place of $NAME, ${NAME},
// ${NAME:-else} and ${NAME:+instead}, with or without the colon. A name that is
// not there is empty.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	e := expander{text: text, lookup: lookup}
	out, err := e.until(0)
	return out, err
}

// maxDepth bounds ${A:-${B:-…}}.
const maxDepth = 32

type expander struct {
	text   string
	at     int
	depth  int
	lookup func(string) (string, bool)
}

// until expands up to a character, which it leaves behind, or to the end.
func (e *expander) until(end byte) (string, error) {
	if e.depth++; e.depth > maxDepth {
		return "", fmt.Errorf("%s is too deep", shorten(e.text))
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

// variable expands what follows a dollar sign.
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
	return value, nil
}

// name takes a variable's name.
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
		return "", fmt.Errorf("${ has no name and end")
	}
	value, set := e.lookup(name)
	if e.text[e.at] == '}' {
		e.at++
		return value, nil
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
		return "", fmt.Errorf("${%s is followed by what is not known here; :- and :+ are", name)
	case err != nil:
		return "", err
	case set == (op == '+'):
		return other, nil
	case op == '+':
		return "", nil
	}
	return value, nil
}
