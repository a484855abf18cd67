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

// pairs reads NAME=VALUE words, expanded, in their order. A text without any is
// one name and its value, as it once was written.
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

// variables are what expand puts into a text.
type variables struct {
	lookup func(name string) (value string, ok bool)
	// room is how many bytes of values may be put into texts from now on: values
	// of values would double with every line.
	room *int
}

// maxValues bounds what a Dockerfile's variables come to, in bytes.
const maxValues = 8 << 20

// expand takes quotes away and puts values in the place of $NAME, ${NAME},
// ${NAME:-else} and ${NAME:+instead}, with or without the colon. A name that is
// not there is empty.
func expand(text string, v variables) (string, error) {
	e := expander{text: text, variables: v}
	return e.until(0)
}

// maxDepth bounds ${A:-${B:-…}}.
const maxDepth = 32

type expander struct {
	variables
	text  string
	at    int
	depth int
}

// take returns a value that is put into the text.
func (e *expander) take(value string) (string, error) {
	if *e.room -= len(value); *e.room < 0 {
		return "", fmt.Errorf("the values of variables come to more than %d bytes", maxValues)
	}
	return value, nil
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
	return e.take(value)
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
		return "", fmt.Errorf("${%s is followed by what is not known here; :- and :+ are", name)
	case err != nil:
		return "", err
	case set == (op == '+'):
		return other, nil
	case op == '+':
		return "", nil
	}
	return e.take(value)
}
