package app

import (
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
)

// Runners returns the configured languages.
func Runners(c config.Languages) (interpreter.Table, error) {
	table := interpreter.Runners()
	if c.Runners == "" {
		return table, nil
	}
	return table.LoadDir(c.Runners)
}

// LanguageOf guesses a program's language from the name of its file. If no
// language matches, it returns the known languages.
func LanguageOf(c config.Languages, file, code string) (language string, known []string, err error) {
	table, err := Runners(c)
	if err != nil {
		return "", nil, err
	}
	language, known = table.OfFile(file, code)
	return language, known, nil
}
