package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestReferenceErrors keeps docs/reference/errors.md in step with the sources:
// it has every kind, every verdict, and every error that says what to do.
func TestReferenceErrors(t *testing.T) {
	s := readSources(t)
	var b strings.Builder
	b.WriteString("# Errors and verdicts\n\n" +
		"`go test ./internal/cli -run Reference -update` writes this page from the sources. The sign … stands for a variable part.\n\n" +
		"If a program fails, its run has a verdict. An error means that there was no run, or that another operation failed. " +
		"Each error has a kind, which decides the answer of each interface. If a person or a model can act, the error has a hint: " +
		"`hint:` on the command line, the last line of a tool's text and `hint` in its `structuredContent`, `hint` in JSON over HTTP.\n\n")

	b.WriteString("## Kinds\n\n| kind | means | over HTTP |\n|---|---|---|\n")
	for _, c := range s.constants["Kind"] {
		fmt.Fprintf(&b, "| `%s` | %s | %d |\n", c.value, c.comment, sandbox.Kind(c.value).HTTPStatus())
	}
	b.WriteString("\nOver MCP an error is a result with `isError`, or, for a resource, an error of JSON-RPC.\n\n" +
		"Programs get each error with the same fields: over MCP in `structuredContent`, over HTTP and from a command with `--json` as the member `error` of an object. " +
		"`glovebox` prints this object to standard output, and the text to standard error.\n\n" +
		"| field | means |\n|---|---|\n" +
		"| `kind` | see above |\n" +
		"| `message` | the fault |\n" +
		"| `argument` | the argument, field or flag at fault, if there is one |\n" +
		"| `hint` | the remedy, if one is known |\n" +
		"| `retry_after_seconds` | the time after which a retry may succeed, if it is known; over HTTP also the header `Retry-After` |\n")

	fmt.Fprintf(&b, "\n## Exit statuses\n\nThe rule is the same for all commands:\n\n| status | means |\n|---|---|\n"+
		"| 0 | success |\n"+
		"| %d | an error of another kind than `invalid`, in all commands except `glovebox run` and `glovebox shell` |\n"+
		"| %d | an error of kind `invalid`: the command line, a file that it names, an environment variable or the configuration is wrong; the same command fails again |\n"+
		"| %d | `glovebox run` and `glovebox shell`: an error of another kind than `invalid`, so that a script can distinguish it from the program's own status |\n"+
		"| any other | `glovebox run` and `glovebox shell`: the program's own status, or that of its verdict |\n",
		console.StatusFailure, console.StatusUsage, console.StatusBroken)

	b.WriteString("\n## Verdicts\n\n| verdict | means | exit status of `glovebox run` |\n|---|---|---|\n")
	for _, c := range s.constants["VerdictCode"] {
		status := "the program's, or 1"
		if code := console.RunStatus(sandbox.Run{Verdict: sandbox.Verdict{Code: sandbox.VerdictCode(c.value)}}); code != console.StatusFailure {
			status = strconv.Itoa(code)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.value, c.comment, status)
	}
	b.WriteString("\nCauses and next steps:\n\n| verdict | cause | next step |\n|---|---|---|\n")
	writeRows(&b, s.verdicts)

	b.WriteString("\n## Hints of errors\n\nThe error itself names the wrong argument or setting. This list does not have errors of other programs, such as container engines.\n")
	for _, c := range s.constants["Kind"] {
		if rows := s.hints[c.name]; len(rows) > 0 {
			fmt.Fprintf(&b, "\n### %s\n\n| error | hint |\n|---|---|\n", c.value)
			writeRows(&b, rows)
		}
	}
	if len(s.constants["Kind"]) < 8 || len(s.constants["VerdictCode"]) < 9 || len(s.verdicts) < 15 || len(s.hints["Invalid"]) < 50 {
		t.Errorf("too little was found: %d kinds, %d verdicts, %d causes, %d errors of kind invalid",
			len(s.constants["Kind"]), len(s.constants["VerdictCode"]), len(s.verdicts), len(s.hints["Invalid"]))
	}
	check(t, "errors.md", b.String())
}

func writeRows(b *strings.Builder, rows [][]string) {
	slices.SortFunc(rows, slices.Compare)
	for _, row := range slices.CompactFunc(rows, slices.Equal) {
		fmt.Fprintf(b, "| %s |\n", strings.ReplaceAll(strings.Join(row, " | "), "\n", " "))
	}
}

// sources are what the page needs of them.
type sources struct {
	constants map[string][]constant // of package sandbox, by type
	verdicts  [][]string            // code, cause, next step
	hints     map[string][][]string // message and hint, by the name of the kind
}

type constant struct{ name, value, comment string }

func readSources(t *testing.T) *sources {
	t.Helper()
	s := &sources{constants: map[string][]constant{}, hints: map[string][][]string{}}
	set := token.NewFileSet()
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if strings.Contains(dir, "driver/fake") || strings.Contains(dir, "test") {
			return nil // for tests only
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		packages[dir] = append(packages[dir], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const words = "../sandbox" // first: it names the kinds and the verdicts
	for _, dir := range append([]string{words}, slices.Sorted(maps.Keys(packages))...) {
		files := packages[dir]
		delete(packages, dir)
		p := &pkg{sources: s, texts: map[string]ast.Expr{}}
		for _, file := range files {
			for _, d := range file.Decls {
				if g, ok := d.(*ast.GenDecl); ok {
					p.declare(g)
				}
			}
		}
		for _, file := range files {
			ast.Inspect(file, p.visit)
		}
	}
	return s
}

// A pkg is a package that is looked through. texts are its constants and
// variables.
type pkg struct {
	*sources
	texts map[string]ast.Expr
}

func (p *pkg) declare(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || len(v.Names) != len(v.Values) {
			continue
		}
		for i, name := range v.Names {
			p.texts[name.Name] = v.Values[i]
		}
		if kind, ok := v.Type.(*ast.Ident); ok && g.Tok == token.CONST && (kind.Name == "Kind" || kind.Name == "VerdictCode") {
			value, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			p.constants[kind.Name] = append(p.constants[kind.Name], constant{v.Names[0].Name, value, strings.TrimSpace(v.Comment.Text())})
		}
	}
}

// visit notes a verdict, a reason for one, or an error with a hint.
func (p *pkg) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if typ := nameOf(n.Type); typ == "Verdict" || typ == "Reason" {
			row := map[string]string{}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					field := strings.ToLower(nameOf(kv.Key))
					if field == "code" {
						row[field] = nameOf(kv.Value)
					} else {
						row[field] = p.text(kv.Value)
					}
				}
			}
			i := slices.IndexFunc(p.constants["VerdictCode"], func(c constant) bool { return c.name == row["code"] })
			if i >= 0 && strings.Trim(row["cause"], "…") != "" {
				p.verdicts = append(p.verdicts, []string{"`" + p.constants["VerdictCode"][i].value + "`", row["cause"], row["nextstep"] + row["next"]})
			}
		}
	case *ast.CallExpr:
		if nameOf(n.Fun) != "WithHint" || len(n.Args) < 2 {
			return true
		}
		kind, message := p.failure(n.Args[0])
		hint := p.text(n.Args[1])
		if strings.Trim(message, "…: ") != "" && strings.Trim(hint, "… ") != "" {
			p.hints[kind] = append(p.hints[kind], []string{message, hint})
		}
	}
	return true
}

// failure returns the kind and the words of an expression that makes an error.
func (p *pkg) failure(e ast.Expr) (kind, message string) {
	switch e := e.(type) {
	case *ast.Ident:
		if value, ok := p.texts[e.Name]; ok {
			return p.failure(value)
		}
	case *ast.CallExpr:
		switch name := nameOf(e.Fun); {
		case name == "Errorf" && len(e.Args) >= 2 && nameOf(e.Args[0]) != "":
			return nameOf(e.Args[0]), p.text(e.Args[1])
		case name == "Errorf" && len(e.Args) >= 2 && nameOf(e.Args[1]) == "ErrUnavailable":
			return "Unavailable", strings.TrimPrefix(p.text(e.Args[0]), "…: ")
		case name == "UsageError" || name == "usage" || name == "Invalid" && len(e.Args) > 0:
			return "Invalid", p.text(e.Args[0])
		}
	}
	return "", ""
}

// verb is a place in a format that is filled in.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0-9.*]*[a-zA-Z]`)

// text returns the words of an expression, with … for what is not constant.
func (p *pkg) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			s = strings.ReplaceAll(verb.ReplaceAllString(s, "…"), "%%", "%")
			return strings.NewReplacer(`"…"`, "…", "|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(s)
		}
	case *ast.BinaryExpr:
		return p.text(e.X) + p.text(e.Y)
	case *ast.Ident:
		if value, ok := p.texts[e.Name]; ok {
			return p.text(value)
		}
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Sprintf" {
			return p.text(e.Args[0])
		}
	}
	return "…"
}

// nameOf returns the name of what an expression refers to, without its package.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
