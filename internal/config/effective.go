package config

import (
	"encoding"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// A Setting is one setting in force.
type Setting struct {
	Name   string `json:"name"` // as in the file, with the names above it
	Value  string `json:"value"`
	Source string `json:"source"`
}

// The sources of a setting, from the weakest to the strongest.
const (
	FromDefault     = "default"
	FromFile        = "file"
	FromEnvironment = "environment"
	FromFlag        = "flag"
)

// Effective returns the settings of c, in the order of the fields, and the
// configuration file that was read, "" if there is none. c is the result of [Load]
// with the same arguments, after flags have changed it. A default that was lowered
// to its maximum has the maximum's source.
func Effective(path string, getenv func(string) string, c Config) (settings []Setting, file string, err error) {
	usual := Default(getenv)
	variables := map[string]bool{}
	for _, v := range usual.environ() {
		variables[v.name] = true
	}
	fromFile, err := Load(path, func(name string) string {
		if variables[name] {
			return ""
		}
		return getenv(name)
	})
	if err != nil {
		return nil, "", err
	}
	fromEnvironment, err := Load(path, getenv)
	if err != nil {
		return nil, "", err
	}
	if file = path; file == "" {
		file = getenv(EnvFile)
	}
	if file == "" {
		file = DefaultFile(getenv)
		if _, err := os.Stat(file); err != nil {
			file = ""
		}
	}
	stages := []reflect.Value{reflect.ValueOf(c), reflect.ValueOf(fromEnvironment), reflect.ValueOf(fromFile), reflect.ValueOf(usual)}
	return leaves(nil, "", stages), file, nil
}

// leaves appends the settings below a field. stages are the values of the field
// after each source, the strongest first.
func leaves(list []Setting, name string, stages []reflect.Value) []Setting {
	typ := stages[0].Type()
	if _, isText := stages[0].Interface().(encoding.TextMarshaler); typ.Kind() == reflect.Struct && !isText {
		for i := range typ.NumField() {
			field := fieldName(typ.Field(i))
			if field == "" || field == "-" {
				continue
			}
			below := make([]reflect.Value, len(stages))
			for j, s := range stages {
				below[j] = s.Field(i)
			}
			list = leaves(list, strings.TrimPrefix(name+"."+field, "."), below)
		}
		return list
	}
	sources := []string{FromFlag, FromEnvironment, FromFile}
	s := Setting{Name: name, Value: shown(stages[0]), Source: FromDefault}
	for i, source := range sources {
		if shown(stages[i]) != shown(stages[i+1]) {
			s.Source = source
			break
		}
	}
	return append(list, s)
}

// shown returns a value as a file would have it on one line.
func shown(v reflect.Value) string {
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		if b, err := text.MarshalText(); err == nil {
			return string(b)
		}
	}
	switch v.Kind() {
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = shown(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.Struct:
		// An item of a list; its first field is its name.
		return shown(v.Field(0))
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return shown(v.Elem())
	}
	return fmt.Sprint(v.Interface())
}
