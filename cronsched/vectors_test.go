package cronsched_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// vectorLimit is how many instants a line of a next vector holds unless the
// expression has no more.
const vectorLimit = 5

// A vector is one line of a vector file: either an expression with the
// instants after From, or an expression that is valid or not.
type vector struct {
	Expr  string      `json:"expr"`
	Zone  string      `json:"tz"`
	From  time.Time   `json:"from"`
	Next  []time.Time `json:"next"`
	Valid *bool       `json:"valid"`
}

// TestVectors runs all lines of testdata/*.jsonl, and of the further files in
// the folder that CRON_VECTORS names.
func TestVectors(t *testing.T) {
	folders := []string{"testdata"}
	if more := os.Getenv("CRON_VECTORS"); more != "" {
		folders = append(folders, more)
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no vectors in %s: %v", folder, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { runVectors(t, file) })
		}
	}
}

func runVectors(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if v.Valid != nil {
			if _, err := cronsched.ParseCron(v.Expr); (err == nil) != *v.Valid {
				t.Errorf("line %d: ParseCron(%q) = %v, want valid = %v", n, v.Expr, err, *v.Valid)
			}
			continue
		}
		checkNextVector(t, n, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// checkNextVector walks a line's instants forward with Next and backward with
// Prev.
func checkNextVector(t *testing.T, line int, v vector) {
	t.Helper()
	e := expression(t, v.Expr, v.Zone)
	got := e.Upcoming(v.From, max(vectorLimit, len(v.Next)))
	if !slices.EqualFunc(got, v.Next, time.Time.Equal) {
		t.Errorf("line %d: %q in %s after %v = %v, want %v", line, v.Expr, v.Zone, v.From, got, v.Next)
		return
	}
	for i := len(v.Next) - 1; i > 0; i-- {
		if got, ok := e.Prev(v.Next[i]); !ok || !got.Equal(v.Next[i-1]) {
			t.Errorf("line %d: %q in %s before %v = %v, want %v", line, v.Expr, v.Zone, v.Next[i], got, v.Next[i-1])
		}
		if !e.Matches(v.Next[i]) {
			t.Errorf("line %d: %q in %s does not match %v", line, v.Expr, v.Zone, v.Next[i])
		}
	}
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func expression(t testing.TB, expr, zone string) *cronsched.Expression {
	t.Helper()
	e, err := cronsched.ParseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	return e.In(location(t, zone))
}
