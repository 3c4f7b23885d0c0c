package integration

import (
	"strings"
	"testing"
)

// A database that takes no writes, since it is read-only or full: the log says so now and
// then, what is stored stays right, and work goes on when it takes some again.
func TestFaultSQLiteTakesNoWrites(t *testing.T) {
	for name, pragma := range map[string][2]string{
		"read-only": {"PRAGMA query_only = 1", "PRAGMA query_only = 0"},
		"full":      {"PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"}, // as many as there are
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("fault tests take their time")
			}
			t.Parallel()
			w := newWorld(t, "sqlite")
			jobs := []jobSpec{
				{Name: "hold", Handler: "hold-plain", Concurrent: true},
				{Name: "often", Handler: "quick", Recover: true, Schedule: "every 50ms"},
			}
			n := w.spec("node", jobs...)
			db, err := n.open(nil)
			if err != nil {
				w.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			n.db = db
			node := w.start(n)
			w.Cleanup(func() {
				node.stop()
				_ = db.Close()
			})
			w.call(node, "hold")
			node.await(w, "run hold", 1)
			node.await(w, "run often", 2)
			do(w, db, pragma[0])
			big := strings.Repeat("x", 100<<10) // a full database has room for small things
			if _, err := node.Trigger(w.Context(), "hold", map[string]string{"x": big}); err == nil {
				w.Error("Trigger = nil, want an error")
			}
			if name == "read-only" {
				node.await(w, "event outage", 1)
			}
			if err := w.journal.let("hold"); err != nil { // a run that ends meanwhile
				w.Fatal(err)
			}
			w.poll("it tries", func() bool { return name == "full" || node.Stats().LoopErrors >= 10 })
			if lines := node.log.has("time="); name == "read-only" && (node.log.has("") == 0 || lines > 20) {
				w.Errorf("%d lines of the log for %d errors, want at most 20", lines, node.Stats().LoopErrors)
			}
			ran := node.has("run often")
			do(w, db, pragma[1])
			node.await(w, "run often", ran+3)
			if err := node.RemoveTrigger(w.Context(), "often", "default"); err != nil {
				w.Fatal(err)
			}
			w.settle()
			node.stop()
			w.audit()
			if n := w.number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"); n != 1 {
				w.Error("the file is not whole")
			}
		})
	}
}
