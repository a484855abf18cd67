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

// OfKernel returns the language of that kernel, and whether there is one.
func OfKernel(name string) (Language, bool) {
	for _, l := range WithContexts() {
		if l.Name == name || slices.Contains(l.Context.Others, name) {
			return l, true
		}
	}
	return Language{}, false
}

// Kernels returns the names of all kernels.
func Kernels() []string {
	var names []string
	for _, l := range WithContexts() {
		names = append(append(names, l.Name), l.Context.Others...)
	}
	return names
}

// WithContexts returns the languages that have contexts.
func WithContexts() []Language {
	return slices.DeleteFunc(All(), func(l Language) bool { return l.Context == nil })
}
