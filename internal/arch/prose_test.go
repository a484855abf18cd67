package arch

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// constructions are hard to read, because they hide the subject of a sentence.
// The budget is the number for 10,000 words, about twice that of go-cloud, age,
// containerd, go-sdk and tailscale.
var constructions = []struct {
	name   string
	budget float64
	form   *regexp.Regexp
}{
	{"nobody, somebody, anybody", 2, regexp.MustCompile(`\b(nobody|somebody|anybody)\b`)},
	{"whoever, whom, who has", 2, regexp.MustCompile(`\b(whoever|whom|who has)\b`)},
	{"one that, those that, that of", 11, regexp.MustCompile(`\b(one that|those that|that of)\b`)},
	{"a clause with what after a preposition", 4, regexp.MustCompile(`\b(of|from|than|with|for|by) what\b`)},
	{"tell, tells, told", 7, regexp.MustCompile(`\b(tell|tells|told)\b`)},
	{"a sentence that begins with What, Who or Whoever", 1, regexp.MustCompile(`(?m)(?:^|[.!?] )(What|Whoever|Who)\b([^.?]*)(\.|$)`)},
}

// checkProse compares texts, by the name of their file, with the budgets.
func checkProse(t *testing.T, texts map[string]string) {
	t.Helper()
	words := 0
	for _, text := range texts {
		words += len(strings.Fields(text))
	}
	if words < 10000 {
		t.Fatalf("only %d words were found", words)
	}
	for _, c := range constructions {
		var places []string
		for file, text := range texts {
			for _, found := range c.form.FindAllString(text, -1) {
				places = append(places, file+": "+strings.TrimSpace(found))
			}
		}
		if rate := float64(len(places)) * 10000 / float64(words); rate > c.budget {
			slices.Sort(places)
			t.Errorf("%s: %.1f for 10,000 words, and %v are allowed:\n%s", c.name, rate, c.budget, strings.Join(places, "\n"))
		}
	}
}

func TestProseOfComments(t *testing.T) {
	texts := map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		var b strings.Builder
		for _, c := range s.file.Comments {
			b.WriteString(c.Text())
		}
		texts[s.path] = b.String()
	}
	checkProse(t, texts)
}

func TestProseOfDocuments(t *testing.T) {
	root := repositoryRoot(t)
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := filepath.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || base == "bin" || base == "dist"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(base, ".md"):
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			texts[rel] = fenced.ReplaceAllString(string(text), "")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkProse(t, texts)
}

// docLink is a link to an identifier in a comment: [Name], [Type.Method],
// [pkg.Name] or [pkg.Type.Method].
var docLink = regexp.MustCompile(`\[\*?((?:[a-z][a-z0-9]*\.)?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?)\](?:[^(:\w]|$)`)

// TestCommentLinks looks up the identifiers to which comments link.
func TestCommentLinks(t *testing.T) {
	all := sources(t)
	// declared has, for each directory, its names and the methods and fields of
	// its types.
	declared, byName := map[string]map[string]bool{}, map[string][]string{}
	for _, s := range all {
		if s.test {
			continue
		}
		names := declared[s.pkg]
		if names == nil {
			names = map[string]bool{}
			declared[s.pkg] = names
			byName[s.file.Name.Name] = append(byName[s.file.Name.Name], s.pkg)
		}
		declareAll(names, s.file)
	}
	links := 0
	for _, s := range all {
		if s.test {
			continue
		}
		for _, c := range s.file.Comments {
			for _, m := range docLink.FindAllStringSubmatch(c.Text(), -1) {
				first, rest, qualified := strings.Cut(m[1], ".")
				exists := declared[s.pkg][m[1]]
				switch {
				case exists:
				case qualified && declared[s.pkg][first]:
				case qualified && byName[first] == nil:
					continue // of another module
				case qualified:
					exists = slices.ContainsFunc(byName[first], func(pkg string) bool { return declared[pkg][rest] })
				case byName[first] != nil || !ast.IsExported(first):
					continue // a package, or no link
				}
				if links++; !exists {
					t.Errorf("%s: [%s] is not declared", s.at(c.Pos()), m[1])
				}
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

func declareAll(names map[string]bool, f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil && len(d.Recv.List) > 0 {
				name = receiverName(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names[n.Name] = true
					}
				case *ast.TypeSpec:
					declareType(names, spec)
				}
			}
		}
	}
}

func declareType(names map[string]bool, spec *ast.TypeSpec) {
	names[spec.Name.Name] = true
	var members *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		members = typ.Fields
	case *ast.InterfaceType:
		members = typ.Methods
	default:
		return
	}
	for _, m := range members.List {
		for _, n := range m.Names {
			names[spec.Name.Name+"."+n.Name] = true
		}
	}
}

func receiverName(typ ast.Expr) string {
	switch x := typ.(type) {
	case *ast.StarExpr:
		return receiverName(x.X)
	case *ast.IndexExpr:
		return receiverName(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
