package taskmanager_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Which package may import which: a library that is small stays small.
func TestImportsFollowTheArrows(t *testing.T) {
	const (
		clock   = "github.com/benbjohnson/clock"
		backoff = "github.com/cenkalti/backoff/v4"
		sync    = "golang.org/x/sync/"
		inside  = module + "/internal/"
	)
	for _, c := range []struct {
		pkg string
		may []string // beside the standard library; with a slash at the end, all below
	}{
		{module, []string{inside, clock, backoff, sync}},
		{module + "/internal/seam", nil},
		{module + "/cronsched", []string{inside}},
		{module + "/tasktest", []string{module, inside, clock, backoff, sync}},
		{module + "/internal/queue", nil},
		{module + "/internal/limits", nil},
		{module + "/durable", []string{module, module + "/cronsched", inside, clock, backoff, sync}},
		{module + "/durable/sqlstore", []string{module, module + "/cronsched", module + "/durable", inside, clock, backoff, sync}},
	} {
		for _, imported := range imports(t, c.pkg) {
			if !slices.ContainsFunc(c.may, func(may string) bool {
				return imported == may || strings.HasSuffix(may, "/") && strings.HasPrefix(imported, may)
			}) {
				t.Errorf("%s imports, directly or not, %s; it may %q", c.pkg, imported, c.may)
			}
		}
	}
}

// These would come into every program: flags of the test binary, handlers on
// http.DefaultServeMux.
func TestRootImportsNothingWithSideEffects(t *testing.T) {
	all := strings.Fields(goCommand(t, "list", "-deps", module))
	for _, unwanted := range []string{"testing", "expvar", "net/http/pprof"} {
		if slices.Contains(all, unwanted) {
			t.Errorf("%s imports %s", module, unwanted)
		}
	}
}

// Every requirement binds every user's build, those of tests too.
func TestModuleRequiresAsLittleAsWritten(t *testing.T) {
	var mod struct {
		Require []struct{ Path string }
		Replace []any
		Tool    []any
	}
	if err := json.Unmarshal([]byte(goCommand(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range mod.Require {
		got = append(got, r.Path)
	}
	want := []string{"github.com/benbjohnson/clock", "github.com/cenkalti/backoff/v4", "go.uber.org/goleak", "golang.org/x/sync"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("go.mod requires %q, want %q", got, want)
	}
	if len(mod.Replace)+len(mod.Tool) > 0 {
		t.Errorf("go.mod has replacements %v and tools %v, want none", mod.Replace, mod.Tool)
	}
}

// imports are the packages, but for those of the standard library, that pkg needs.
func imports(t *testing.T, pkg string) (list []string) {
	t.Helper()
	for _, line := range strings.Fields(goCommand(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)) {
		if line != pkg {
			list = append(list, line)
		}
	}
	return list
}

// Every module takes part in the workspace, so that go test work is all of them.
func TestWorkspaceHasEveryModule(t *testing.T) {
	if _, err := os.Stat("go.work"); err != nil {
		t.Skip("not in a checkout:", err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal([]byte(goCommand(t, "work", "edit", "-json", "go.work")), &work); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, u := range work.Use {
		got = append(got, filepath.ToSlash(filepath.Clean(u.DiskPath)))
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "testdata" || path == "tools" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir // tools has the linter's version and no code
		}
		if d != nil && d.Name() == "go.mod" {
			want = append(want, filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("go.work uses %q, want %q", got, want)
	}
}
