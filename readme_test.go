package taskmanager_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goBlocks are the Go snippets of README.md.
func goBlocks(t *testing.T) (blocks []string) {
	t.Helper()
	text := strings.ReplaceAll(readText(t, "README.md"), "\r\n", "\n")
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatal("README.md has no Go in it")
	}
	return blocks
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the fragments of README.md use without having it.
const readmePrelude = `package readme

import (
	"context"

	"github.com/taskmanager-go/taskmanager"
)

var m *taskmanager.TaskManager

func cleanup(context.Context) error { return nil }
func save(context.Context) error    { return nil }
func refresh(context.Context) error { return nil }
func report(context.Context) error  { return nil }

var _ = []any{m, cleanup, save, refresh, report}
`

// The packages that they may use.
var readmeImports = map[string]string{
	"taskmanager": module, "cronsched": module + "/cronsched", "tasktest": module + "/tasktest",
	"durable": module + "/durable", "sqlstore": module + "/durable/sqlstore", "sql": "database/sql",
	"context": "context", "errors": "errors", "expvar": "expvar", "fmt": "fmt", "log": "log",
	"http": "net/http", "testing": "testing", "time": "time",
}

// Every snippet compiles and passes go vet, as it stands there, in a module that
// has this one by a replace directive.
func TestREADMEIsCodeThatCompiles(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	mod := strings.Replace(readText(t, "go.mod"), "module "+module, "module readme", 1)
	write("go.mod", fmt.Sprintf("%s\nrequire %s v0.0.0\n\nreplace %[2]s => %q\n", mod, module, root))
	write("go.sum", readText(t, "go.sum"))
	for i, block := range goBlocks(t) {
		if strings.HasPrefix(block, "package ") {
			write(fmt.Sprintf("snippet%d/snippet.go", i), block)
			continue
		}
		write(fmt.Sprintf("snippet%d/snippet.go", i), completed(t, block))
		write(fmt.Sprintf("snippet%d/prelude.go", i), readmePrelude)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Dir = dir
	vet.Env = append(os.Environ(), "GOWORK=off", "PWD="+dir)
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet of README.md's snippets, in order of their appearance: %v\n%s", err, out)
	}
}

// completed makes a fragment, of statements or declarations, a file.
func completed(t *testing.T, fragment string) string {
	t.Helper()
	body := fragment
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+fragment, parser.SkipObjectResolution); err != nil {
		body = "func _() error {\n" + fragment
		if !regexp.MustCompile(`(?m)^return `).MatchString(fragment) {
			body += "return nil\n"
		}
		body += "}\n"
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, 0)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, fragment)
	}
	var imports []string
	for _, unresolved := range f.Unresolved {
		if path, ok := readmeImports[unresolved.Name]; ok {
			imports = append(imports, fmt.Sprintf("import %s %q\n", unresolved.Name, path))
		}
	}
	slices.Sort(imports)
	return "package readme\n\n" + strings.Join(slices.Compact(imports), "") + "\n" + body
}

// The snippets are formatted, so that they look the same when they are pasted.
func TestREADMEIsFormatted(t *testing.T) {
	for _, block := range goBlocks(t) {
		formatted, err := format.Source([]byte(block))
		if err != nil {
			t.Errorf("%v in:\n%s", err, block)
		} else if string(formatted) != block {
			t.Errorf("not as gofmt has it:\n%s", block)
		}
	}
}

// What README.md begins with is the program that Example runs; and each function
// in it that exists in example_test.go is that one.
func TestREADMEHasTheTestedExamples(t *testing.T) {
	tested := functions(t, "example_test.go", readText(t, "example_test.go"))
	blocks := goBlocks(t)
	program := functions(t, "README.md", blocks[0])
	if got, want := program["main"], tested["Example"]; got != want {
		t.Errorf("the first program of README.md is\n%s\nwant that of Example:\n%s", got, want)
	}
	found := 0
	for _, block := range blocks {
		if !strings.HasPrefix(block, "package ") {
			block = "package p\n" + block
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "", block, parser.SkipObjectResolution); err != nil {
			continue // statements
		}
		for name, got := range functions(t, "README.md", block) {
			if want, ok := tested[name]; ok {
				found++
				if got != want {
					t.Errorf("%s of README.md is\n%s\nwant\n%s", name, got, want)
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("README.md has %d functions of example_test.go, want 2: step and a test", found)
	}
}

// functions are the texts of the bodies of functions, by name.
func functions(t *testing.T, name, text string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil {
			body := text[fset.Position(d.Body.Lbrace).Offset:fset.Position(d.Body.Rbrace).Offset]
			body, _, _ = strings.Cut(body, "\t// Output:\n")
			bodies[d.Name.Name] = body
		}
	}
	return bodies
}

// What README.md shows as output is what the examples print.
func TestREADMEShowsRealOutput(t *testing.T) {
	examples := readText(t, "example_test.go")
	blocks := regexp.MustCompile("(?ms)^```text\n(.*?)^```$").FindAllStringSubmatch(readText(t, "README.md"), -1)
	for _, m := range blocks {
		var b bytes.Buffer
		for line := range strings.Lines(m[1]) {
			b.WriteString(strings.TrimRight("\t// "+strings.TrimSuffix(line, "\n"), " ") + "\n")
		}
		if !strings.Contains(examples, b.String()) {
			t.Errorf("no example prints\n%s", m[1])
		}
	}
	if len(blocks) != 2 {
		t.Errorf("README.md has %d blocks of output, want 2", len(blocks))
	}
}

// Links to files lead somewhere, and those within the page to a heading.
func TestREADMELinksLeadSomewhere(t *testing.T) {
	for _, file := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		text := readText(t, file)
		anchors := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
			anchors["#"+strings.ReplaceAll(strings.ToLower(strings.TrimSpace(m[1])), " ", "-")] = true
		}
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			switch link := m[1]; {
			case strings.HasPrefix(link, "https://"):
			case strings.HasPrefix(link, "#"):
				if !anchors[link] {
					t.Errorf("%s links to %s, which is no heading", file, link)
				}
			default:
				if _, err := os.Stat(link); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

// The map of files at the end of doc.go has them all, and no others.
func TestTheMapOfFilesIsComplete(t *testing.T) {
	mapped := map[string]bool{"doc.go": true}
	for _, name := range regexp.MustCompile(`[a-z_]+\.go\b`).FindAllString(readText(t, "doc.go"), -1) {
		mapped[name] = true
		if _, err := os.Stat(name); err != nil {
			t.Errorf("doc.go: %v", err)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") && !mapped[name] {
			t.Errorf("doc.go does not say what is in %s", name)
		}
	}
}
