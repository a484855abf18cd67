package language

import (
	"slices"
	"strings"
)

// Find returns the language of that name or alias, in any case, and whether there
// is one.
func Find(name string) (Language, bool) {
	name = strings.ToLower(name)
	all := All()
	i := slices.IndexFunc(all, func(l Language) bool { return l.Name == name || slices.Contains(l.Aliases, name) })
	if i < 0 {
		return Language{}, false
	}
	return all[i], true
}

// WithContexts returns the languages that have contexts.
func WithContexts() []Language {
	return slices.DeleteFunc(All(), func(l Language) bool { return l.Context == nil })
}
