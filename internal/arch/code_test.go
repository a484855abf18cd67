package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if _, ok := docs[s.pkg]; !ok {
			docs[s.pkg] = nil
		}
		if s.file.Doc == nil {
			continue
		}
		docs[s.pkg] = append(docs[s.pkg], s.path)
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command " + strings.TrimPrefix(s.pkg, "cmd/") + " "
		}
		if text := s.file.Doc.Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package's comment does not begin with %q", s.path, want)
		}
	}
	for pkg, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s: %d files have a package comment, want one: %v", pkg, len(files), files)
		}
	}
}

func TestExportedNamesHaveComments(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && receiverExported(d) && d.Doc == nil && !obvious[d.Name.Name] {
					t.Errorf("%s: %s has no comment", s.at(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				checkGenDecl(t, s, d)
			}
		}
	}
}

// obvious are methods that a well-known interface explains.
var obvious = map[string]bool{"Error": true, "String": true, "Unwrap": true, "Is": true, "Len": true, "Less": true, "Swap": true}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func checkGenDecl(t *testing.T, s source, d *ast.GenDecl) {
	if d.Tok == token.IMPORT {
		return
	}
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil {
				t.Errorf("%s: type %s has no comment", s.at(spec.Pos()), spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, n := range spec.Names {
				// One comment may speak for a group.
				if n.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					t.Errorf("%s: %s has no comment", s.at(n.Pos()), n.Name)
				}
			}
		}
	}
}

func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init runs unasked, in tests and in helper processes too; call it from main", s.at(f.Pos()))
			}
		}
	}
}

func TestStandardOutputBelongsToTheCommandLine(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || testOnly[s.pkg] || s.pkg == "cli" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					t.Errorf("%s: %s writes to standard error behind everyone's back", s.at(n.Pos()), id.Name)
				}
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				if !ok {
					return true
				}
				bad := id.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") || id.Name == "os" && n.Sel.Name == "Stdout"
				if bad && standardOutput[s.pkg] != "" {
					used[s.pkg] = true
				} else if bad {
					t.Errorf("%s: %s.%s: standard output belongs to the protocol; pass a writer from cli", s.at(n.Pos()), id.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
	for pkg := range standardOutput {
		if !used[pkg] {
			t.Errorf("standardOutput has %s, which does not use it", pkg)
		}
	}
}

// unfinished matches what is written when something is to be done later.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|panic\("un` + `written"\)`)

func TestNothingUnfinished(t *testing.T) {
	for _, s := range sources(t) {
		for i, line := range strings.Split(string(s.text), "\n") {
			if m := unfinished.FindString(line); m != "" {
				t.Errorf("%s:%d: %s: do it now, or leave it out", s.path, i+1, m)
			}
		}
	}
}

func TestGlobalState(t *testing.T) {
	// The functions of log, and slog's default logger, write to a global
	// that belongs to nobody; a logger is passed in.
	global := regexp.MustCompile(`^slog\.(Default|SetDefault|Debug|Info|Warn|Error|Log)$`)
	globalLog := regexp.MustCompile(`^log\.(Print|Fatal|Panic|Set|Default|Writer|Flags|Output)`)
	decodesPictures := regexp.MustCompile(`^(image|image/.*|golang\.org/x/image/.*)$`)
	for _, s := range sources(t) {
		if s.test || testOnly[s.pkg] {
			continue
		}
		stdLog := false
		for _, p := range s.imports() {
			stdLog = stdLog || p == "log"
			if (p == "math/rand" || p == "math/rand/v2") && notSecret[s.pkg] == "" {
				t.Errorf("%s: imports %s; identifiers and secrets come from crypto/rand", s.path, p)
			}
			if decodesPictures.MatchString(p) && s.pkg != "guest/picture" {
				t.Errorf("%s: imports %s; pictures are decoded in their sandbox, by the guest", s.path, p)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			if name := id.Name + "." + sel.Sel.Name; global.MatchString(name) || stdLog && globalLog.MatchString(name) {
				t.Errorf("%s: %s uses the global logger; one is passed in", s.at(n.Pos()), name)
			}
			return true
		})
	}
}
