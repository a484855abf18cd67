package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/glovebox-dev/glovebox"

// A source is one Go file of the repository.
type source struct {
	path  string // from the root, with slashes
	pkg   string // the package as the table names it
	test  bool
	lines int
	text  []byte
	file  *ast.File
	fset  *token.FileSet
}

func (s source) at(pos token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(pos).Line)
}

// imports returns the paths the file imports.
func (s source) imports() []string {
	var paths []string
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// packageOf is the table's name for an import path of this module.
func packageOf(importPath string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
	return strings.TrimPrefix(rest, "internal/")
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("repository root not found: %v", err)
	}
	return root
}

// sources parses every Go file of the product's module, whatever system it is for.
func sources(t *testing.T) []source {
	t.Helper()
	root := repositoryRoot(t)
	var all []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch base := d.Name(); {
			case name == root:
			case strings.HasPrefix(base, "."), base == "testdata", base == "node_modules", base == "bin", base == "dist":
				return fs.SkipDir
			default:
				if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
					return fs.SkipDir // a module of its own, for tests
				}
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		all = append(all, source{
			path:  rel,
			pkg:   packageOf(module + "/" + path.Dir(rel)),
			test:  strings.HasSuffix(rel, "_test.go"),
			lines: strings.Count(string(text), "\n"),
			text:  text,
			file:  file,
			fset:  fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d source files found below %s", len(all), root)
	}
	return all
}
