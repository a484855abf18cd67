package glob

import (
	"path"
	"strings"
)

// A Rule is a line of a .gitignore file. Of the rules of a file, the last one that
// matches decides.
type Rule struct {
	parts    []string // of the pattern, between slashes
	anchored bool
	dirOnly  bool
	negated  bool
}

// ParseRule parses a line without its end. It reports false for a line without a
// rule, such as a comment.
func ParseRule(line string) (Rule, bool) {
	var r Rule
	if strings.HasPrefix(line, "#") || len(line) > maxLine {
		return r, false
	}
	line = trimBlanks(line)
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false
	}
	r.parts = splitPattern(line)
	if last := len(r.parts) - 1; r.anchored && r.parts[last] == "**" {
		r.parts = append(r.parts, "*") // at the end, ** does not match the directory itself
	}
	return r, true
}

// maxLine bounds a rule, in bytes. A path of Linux is not longer.
const maxLine = 4096

// ParseRules parses the text of a .gitignore file, up to limit rules. It reports
// false if there are more.
func ParseRules(text string, limit int) (rules []Rule, whole bool) {
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		r, ok := ParseRule(strings.TrimSuffix(line, "\r"))
		if !ok {
			continue
		}
		if len(rules) == limit {
			return rules, false
		}
		rules = append(rules, r)
	}
	return rules, true
}

// Size returns the memory that the rule takes, in bytes.
func (r *Rule) Size() int {
	n := 64
	for _, p := range r.parts {
		n += 16 + len(p)
	}
	return n
}

// Negated reports whether the rule includes what an earlier rule ignores.
func (r *Rule) Negated() bool { return r.negated }

// Matches reports whether the rule applies to a file. The name is relative to the
// directory of the .gitignore file. A rule for a directory does not apply to the
// directory's contents: the caller leaves them out with the directory.
func (r *Rule) Matches(name string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if !r.anchored {
		return matchPart(r.parts[0], path.Base(name))
	}
	return matchParts(r.parts, strings.Split(name, "/"))
}

// trimBlanks removes the blanks at the end of a line, except an escaped blank.
func trimBlanks(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			end = i + 1
		} else if line[i] != ' ' {
			end = i + 1
		}
	}
	return line[:min(end, len(line))]
}
