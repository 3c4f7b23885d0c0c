package taskmanager_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite api.txt")

const module = "github.com/taskmanager-go/taskmanager"

// nameBudget is how many exported names the root package may have: what a person
// has to look through to find the one they need.
const nameBudget = 90

// What the packages export is a promise, so that a change of it shows in a diff of
// api.txt. After a change that is meant: go test -run TestAPI -update .
func TestAPIIsAsWritten(t *testing.T) {
	var b strings.Builder
	for _, path := range []string{module, module + "/tasktest", module + "/cronsched", module + "/durable", module + "/durable/sqlstore", module + "/durable/storetest"} {
		fmt.Fprintf(&b, "package %s\n\n", path)
		for _, line := range exported(load(t, path)) {
			fmt.Fprintln(&b, line)
		}
		fmt.Fprintln(&b)
	}
	got := strings.TrimSuffix(b.String(), "\n")
	if *update {
		if err := os.WriteFile("api.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(string(golden), "\r\n", "\n")
	if got == want {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			t.Errorf("new:  %s", line)
		}
	}
	t.Error("the exported API is not as in api.txt; if that is meant: go test -run TestAPI -update .")
}

func TestRootPackageKeepsToItsBudgetOfNames(t *testing.T) {
	var names []string
	scope := load(t, module).Scope()
	for _, name := range scope.Names() {
		if token.IsExported(name) {
			names = append(names, name)
		}
	}
	if len(names) > nameBudget {
		t.Errorf("%d exported names, want %d at most: %s", len(names), nameBudget, strings.Join(names, ", "))
	}
}

// exported describes what a package exports, a line for each name, field and
// method.
func exported(pkg *types.Package) (lines []string) {
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if obj := scope.Lookup(name); obj.Exported() {
			lines = append(lines, describe(obj, types.RelativeTo(pkg))...)
		}
	}
	return lines
}

func describe(obj types.Object, in types.Qualifier) []string {
	switch obj := obj.(type) {
	case *types.Const:
		return []string{fmt.Sprintf("const %s %s = %s", obj.Name(), types.TypeString(obj.Type(), in), obj.Val().ExactString())}
	case *types.TypeName:
		return describeType(obj, in)
	}
	return []string{types.ObjectString(obj, in)}
}

func describeType(obj *types.TypeName, in types.Qualifier) []string {
	named, ok := obj.Type().(*types.Named)
	if !ok || obj.IsAlias() {
		return []string{types.ObjectString(obj, in)}
	}
	lines := []string{"type " + obj.Name() + " " + kind(named.Underlying(), in)}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for i := range u.NumFields() {
			if f := u.Field(i); f.Exported() {
				lines = append(lines, strings.TrimRight(fmt.Sprintf("\t%s %s %s", f.Name(), types.TypeString(f.Type(), in), u.Tag(i)), " "))
			}
		}
	case *types.Interface:
		for i := range u.NumMethods() {
			lines = append(lines, "\t"+signature(u.Method(i), in))
		}
	}
	var methods []string
	for i := range named.NumMethods() {
		if m := named.Method(i); m.Exported() {
			methods = append(methods, "method ("+types.TypeString(m.Signature().Recv().Type(), in)+") "+signature(m, in))
		}
	}
	methods = append(methods, promoted(named, in)...)
	slices.Sort(methods)
	return append(lines, methods...)
}

// promoted are the methods that a struct has of the unexported types that it embeds.
func promoted(named *types.Named, in types.Qualifier) (methods []string) {
	u, ok := named.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	for i := range u.NumFields() {
		f := u.Field(i)
		if !f.Embedded() || f.Exported() {
			continue
		}
		set := types.NewMethodSet(types.NewPointer(f.Type()))
		for i := range set.Len() {
			m := set.At(i).Obj().(*types.Func)
			if obj, path, _ := types.LookupFieldOrMethod(types.NewPointer(named), false, m.Pkg(), m.Name()); m.Exported() && obj == m && len(path) > 1 {
				methods = append(methods, "method (*"+named.Obj().Name()+") "+signature(m, in))
			}
		}
	}
	return methods
}

// kind is a type with what it consists of left out, if that follows line by line.
func kind(u types.Type, in types.Qualifier) string {
	switch u.(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	}
	return types.TypeString(u, in)
}

func signature(f *types.Func, in types.Qualifier) string {
	return f.Name() + strings.TrimPrefix(types.TypeString(f.Signature(), in), "func")
}

// load type-checks a package from its source, and what it imports from what the go
// command has compiled.
func load(t *testing.T, path string) *types.Package {
	t.Helper()
	compiled := map[string]string{}
	for line := range strings.Lines(goCommand(t, "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", path)) {
		imported, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		compiled[imported] = file
	}
	fset := token.NewFileSet()
	var files []*ast.File
	list := strings.Split(strings.TrimSpace(goCommand(t, "list", "-f", "{{.Dir}}{{range .GoFiles}}\n{{.}}{{end}}", path)), "\n")
	for _, name := range list[1:] {
		f, err := parser.ParseFile(fset, filepath.Join(list[0], strings.TrimSpace(name)), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(imported string) (io.ReadCloser, error) {
		return os.Open(compiled[imported])
	})}
	pkg, err := config.Check(path, fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// goCommand runs the go command in the root of the module and returns what it
// prints.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &problems)
	}
	return out.String()
}
