package dashboard

import (
	"html/template"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A syntax says how to find the parts of a program that get a colour. It knows no more
// of a language: a part that it does not find is shown as plain text.
type syntax struct {
	line     []string // beginnings of comments up to the end of the line
	block    [2]string
	quotes   string   // characters around strings on one line
	long     []string // marks around strings on several lines
	keywords string
}

const (
	cKeywords  = " auto break case char class const continue default delete do double else enum extern false float for goto if inline int long namespace new nullptr operator private protected public return short signed sizeof static struct switch template this throw true try catch typedef typename union unsigned using virtual void volatile while bool include define "
	jsKeywords = " async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private protected public return set static super switch this throw true try type typeof undefined var void while with yield "
	shKeywords = " case do done elif else esac exit export fi for function if in local read return set shift then until while cd echo "
)

// syntaxes are the languages that get colours, by the names of package language.
var syntaxes = map[string]syntax{
	"python":     {[]string{"#"}, [2]string{}, `"'`, []string{`"""`, "'''"}, " False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield self print "},
	"javascript": {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, []string{"`"}, jsKeywords},
	"typescript": {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, []string{"`"}, jsKeywords + "any boolean never number readonly string unknown "},
	"bash":       {[]string{"#"}, [2]string{}, "", []string{`"`, "'"}, shKeywords},
	"sh":         {[]string{"#"}, [2]string{}, "", []string{`"`, "'"}, shKeywords},
	"go":         {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, []string{"`"}, " any bool break byte case chan const continue default defer else error fallthrough false for func go goto if import int interface iota map nil package range return select string struct switch true type var "},
	"rust":       {[]string{"//"}, [2]string{"/*", "*/"}, `"`, nil, " as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while "},
	"c":          {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, nil, cKeywords},
	"c++":        {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, nil, cKeywords},
	"java":       {[]string{"//"}, [2]string{"/*", "*/"}, `"'`, []string{`"""`}, " abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws true try var void volatile while yield "},
	"ruby":       {[]string{"#"}, [2]string{}, `"'`, nil, " alias and begin break case class def do else elsif end ensure false for if in module next nil not or puts redo require rescue retry return self super then true unless until when while yield "},
	"php":        {[]string{"//", "#"}, [2]string{"/*", "*/"}, `"'`, nil, " abstract and array as break case catch class const continue default do echo else elseif enum extends false final finally fn for foreach function global if implements include interface namespace new null or private protected public require return static switch throw trait true try use var while yield "},
	"perl":       {[]string{"#"}, [2]string{}, `"'`, nil, " and die do else elsif eq for foreach if last local my ne next not or our package print return sub undef unless until use while "},
	"lua":        {[]string{"--"}, [2]string{"--[[", "]]"}, `"'`, nil, " and break do else elseif end false for function goto if in local nil not or repeat return then true until while "},
	"r":          {[]string{"#"}, [2]string{}, `"'`, nil, " break else FALSE for function if in Inf library NA next NULL repeat return TRUE while "},
	"julia":      {[]string{"#"}, [2]string{"#=", "=#"}, `"`, []string{`"""`}, " abstract baremodule begin break catch const continue do else elseif end export false finally for function global if import in let local macro module mutable quote return struct true try using where while "},
	"json":       {nil, [2]string{}, `"`, nil, " true false null "},
	"yaml":       {[]string{"#"}, [2]string{}, `"'`, nil, " true false null "},
}

// extensions are the languages of files whose names end so.
var extensions = map[string]string{
	".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript", ".sh": "bash", ".go": "go", ".rs": "rust", ".c": "c", ".h": "c",
	".cc": "c++", ".cpp": "c++", ".java": "java", ".rb": "ruby", ".php": "php", ".pl": "perl", ".lua": "lua", ".r": "r", ".R": "r", ".jl": "julia",
	".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "yaml",
}

// languageOf returns the language of a file, or "".
func languageOf(name string) string { return extensions[path.Ext(name)] }

// highlighted returns the lines of a program as HTML, with classes for comments,
// strings, keywords and numbers. It is safe for any text.
func highlighted(language, program string) []template.HTML {
	s, known := syntaxes[strings.ToLower(language)]
	var lines []template.HTML
	var b strings.Builder
	emit := func(class, text string) {
		for i, part := range strings.Split(text, "\n") {
			if i > 0 {
				lines = append(lines, template.HTML(b.String()))
				b.Reset()
			}
			if part == "" {
				continue
			}
			if class != "" {
				b.WriteString(`<span class="` + class + `">`)
			}
			writeText(&b, []byte(part))
			if class != "" {
				b.WriteString("</span>")
			}
		}
	}
	for len(program) > 0 {
		class, n := "", len(program)
		if known {
			class, n = s.next(program)
		}
		emit(class, program[:n])
		program = program[n:]
	}
	return append(lines, template.HTML(b.String()))
}

// next returns the class and the length of the first part of a text that is not empty.
func (s *syntax) next(text string) (class string, n int) {
	if open, end := s.block[0], s.block[1]; open != "" && strings.HasPrefix(text, open) {
		return "h-c", until(text, len(open), end)
	}
	if slices.ContainsFunc(s.line, func(mark string) bool { return strings.HasPrefix(text, mark) }) {
		if end := strings.IndexByte(text, '\n'); end > 0 {
			return "h-c", end
		}
		return "h-c", len(text)
	}
	for _, mark := range s.long {
		if strings.HasPrefix(text, mark) {
			return "h-s", until(text, len(mark), mark)
		}
	}
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case strings.ContainsRune(s.quotes, r):
		n = size
		for ; n < len(text) && text[n] != '\n'; n++ {
			if text[n] == '\\' {
				n++
			} else if text[n] == byte(r) {
				return "h-s", n + 1
			}
		}
		// The string does not end: perhaps it is none. The rest of the line is not
		// looked at again, so a line of quotes takes linear time.
		return "", min(n, len(text))
	case unicode.IsDigit(r):
		n = word(text)
		for n < len(text) && text[n] == '.' {
			n++
			n += word(text[n:])
		}
		return "h-n", n
	case unicode.IsLetter(r) || r == '_':
		n = word(text)
		if n <= 16 && strings.Contains(s.keywords, " "+text[:n]+" ") {
			return "h-k", n
		}
		return "", n
	}
	return "", size
}

// until returns the length of a text up to a mark that is not before from and not
// escaped, with the mark. Without one, it is all of the text.
func until(text string, from int, mark string) int {
	for n := from; n < len(text); n++ {
		if text[n] == '\\' {
			n++
		} else if strings.HasPrefix(text[n:], mark) {
			return n + len(mark)
		}
	}
	return len(text)
}

// word returns the length of the letters, digits and underscores that a text begins with.
func word(text string) int {
	for i, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' {
			return i
		}
	}
	return len(text)
}
