package dashboard

import (
	"bytes"
	"html/template"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/ansi"
)

// maxSpans bounds the number of changes of style in one text. After them, the text
// has no more styles.
const maxSpans = 20_000

// A style is how a terminal shows text.
type style struct {
	bold, dim, italic, underline, inverse bool
	fore, back                            int // a colour from 0 to 15, or -1
}

var plainStyle = style{fore: -1, back: -1}

// class returns the classes of a style, or "".
func (s style) class() string {
	var names []string
	for _, n := range []struct {
		on   bool
		name string
	}{{s.bold, "b"}, {s.dim, "d"}, {s.italic, "i"}, {s.underline, "u"}, {s.inverse, "v"}} {
		if n.on {
			names = append(names, "a-"+n.name)
		}
	}
	if s.fore >= 0 {
		names = append(names, "a-f"+strconv.Itoa(s.fore))
	}
	if s.back >= 0 {
		names = append(names, "a-g"+strconv.Itoa(s.back))
	}
	return strings.Join(names, " ")
}

// coloured turns output for a terminal into HTML: text, and spans with classes for
// colours. Titles, links, and movements of the cursor to other lines have no effect.
// Control characters are shown as symbols. The result is safe for any input.
func coloured(output string) template.HTML {
	var b strings.Builder
	spans, now, open := 0, plainStyle, plainStyle
	emit := func(text []byte) {
		if len(text) == 0 {
			return
		}
		if now != open && spans < maxSpans {
			if open != plainStyle {
				b.WriteString("</span>")
			}
			if open = now; open != plainStyle {
				b.WriteString(`<span class="` + open.class() + `">`)
				spans++
			}
		}
		writeText(&b, text)
	}
	for line := range bytes.Lines([]byte(output)) {
		from, to := ansi.Visible(line)
		for i := 0; i < len(line); {
			// Styles count even where the text was overwritten.
			n, _ := ansi.Sequence(line[i:])
			if n > 0 {
				now = now.after(line[i : i+n])
				i += n
				continue
			}
			next := i + 1
			for next < len(line) && line[next] != 0x1b && line[next] != 0xc2 {
				next++
			}
			emit(within(line, i, next, from, to))
			i = next
		}
		if bytes.HasSuffix(line, []byte("\n")) {
			b.WriteByte('\n')
		}
	}
	if open != plainStyle {
		b.WriteString("</span>")
	}
	return template.HTML(b.String())
}

// within returns the part of line[i:next] that is in line[from:to].
func within(line []byte, i, next, from, to int) []byte {
	i, next = max(i, from), min(next, to)
	if i >= next {
		return nil
	}
	return line[i:next]
}

// writeText writes text with escapes for HTML. Invalid bytes become U+FFFD, and control
// and format characters symbols, so that none changes the order of others.
func writeText(b *strings.Builder, text []byte) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\'':
			b.WriteString("&#39;")
		case r == '\t':
			b.WriteByte('\t')
		case r < ' ':
			b.WriteRune('\u2400' + r)
		case r == 0x7f:
			b.WriteRune('\u2421')
		case unicode.Is(unicode.Cf, r) && r != '\u200d' && r != '\u00ad', unicode.Is(unicode.Cc, r):
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
	}
}

// after returns the style after a control sequence. Only SGR changes it.
func (s style) after(sequence []byte) style {
	text := string(sequence)
	params, ok := strings.CutPrefix(text, "\x1b[")
	if !ok {
		params, ok = strings.CutPrefix(text, "\u009b")
	}
	params, final := strings.CutSuffix(params, "m")
	if !ok || !final {
		return s
	}
	numbers := strings.FieldsFunc(params, func(r rune) bool { return r == ';' || r == ':' })
	if params == "" {
		return plainStyle
	}
	for i := 0; i < len(numbers); i++ {
		n, err := strconv.Atoi(numbers[i])
		if err != nil {
			return s
		}
		switch {
		case n == 0:
			s = plainStyle
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 3:
			s.italic = true
		case n == 4:
			s.underline = true
		case n == 7:
			s.inverse = true
		case n == 22:
			s.bold, s.dim = false, false
		case n == 23:
			s.italic = false
		case n == 24:
			s.underline = false
		case n == 27:
			s.inverse = false
		case n >= 30 && n <= 37:
			s.fore = n - 30
		case n >= 90 && n <= 97:
			s.fore = n - 90 + 8
		case n == 39:
			s.fore = -1
		case n >= 40 && n <= 47:
			s.back = n - 40
		case n >= 100 && n <= 107:
			s.back = n - 100 + 8
		case n == 49:
			s.back = -1
		case n == 38 || n == 48:
			colour, used := extended(numbers[i+1:])
			i += used
			if n == 38 {
				s.fore = colour
			} else {
				s.back = colour
			}
		}
	}
	return s
}

// extended returns the nearest of the 16 colours for the parameters of a colour out of
// 256, or of one in red, green and blue. It returns the number of parameters, too.
func extended(numbers []string) (colour, used int) {
	value := func(i int) int {
		if i >= len(numbers) {
			return 0
		}
		n, err := strconv.Atoi(numbers[i])
		if err != nil {
			return 0
		}
		return min(max(n, 0), 255)
	}
	switch value(0) {
	case 5:
		return nearest256(value(1)), min(2, len(numbers))
	case 2:
		return nearest(value(1), value(2), value(3)), min(4, len(numbers))
	}
	return -1, min(1, len(numbers))
}

// nearest256 returns the nearest of the 16 colours to one of xterm's 256.
func nearest256(n int) int {
	switch {
	case n < 16:
		return n
	case n < 232:
		n -= 16
		level := func(v int) int { return []int{0, 95, 135, 175, 215, 255}[v] }
		return nearest(level(n/36), level(n/6%6), level(n%6))
	}
	grey := 8 + 10*(n-232)
	return nearest(grey, grey, grey)
}

// palette has xterm's 16 colours.
var palette = [16][3]int{
	{0, 0, 0}, {205, 0, 0}, {0, 205, 0}, {205, 205, 0}, {0, 0, 238}, {205, 0, 205}, {0, 205, 205}, {229, 229, 229},
	{127, 127, 127}, {255, 0, 0}, {0, 255, 0}, {255, 255, 0}, {92, 92, 255}, {255, 0, 255}, {0, 255, 255}, {255, 255, 255},
}

func nearest(r, g, b int) int {
	best, least := 0, 1<<30
	for i, c := range palette {
		dr, dg, db := r-c[0], g-c[1], b-c[2]
		if d := dr*dr + dg*dg + db*db; d < least {
			best, least = i, d
		}
	}
	return best
}
