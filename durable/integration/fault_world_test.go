package integration

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// eventually bounds every wait of the fault tests: machines are slow.
const eventually = 2 * time.Minute

// A world is a database, the nodes on it, and what their handlers wrote.
type world struct {
	*testing.T
	driver, dsn string
	dialect     sqlstore.Dialect
	db          *sql.DB         // the test's own pool
	store       *sqlstore.Store // on it
	journal     journal
	jobs        map[string]jobSpec
	want        map[string]bool // IDs of runs that were acknowledged
	instants    []firing        // that have to be there
	children    int
}

// A firing is a trigger's instant.
type firing struct {
	job string
	at  time.Time
}

// onDatabases runs a fault test on databases, at the same time.
func onDatabases(t *testing.T, names []string, f func(w *world)) {
	if testing.Short() {
		t.Skip("fault tests take their time")
	}
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(newWorld(t, name))
		})
	}
}

// atOnce has more parallel tests run at once than there are processors, unless somebody
// said how many: the fault tests mostly wait.
func atOnce() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", "8")
	}
}

var (
	everyDatabase = []string{"sqlite", "postgres", "mysql"}
	servers       = []string{"postgres", "mysql"}
)

// newWorld makes a place of the test's own, with tables.
func newWorld(t *testing.T, name string) *world {
	t.Helper()
	driver, dsn := placeOf(t, name)
	return worldAt(t, driver, dsn)
}

func worldAt(t *testing.T, driver, dsn string) *world {
	t.Helper()
	w := &world{T: t, driver: driver, dsn: dsn, dialect: dialectOf(driver), jobs: map[string]jobSpec{}, want: map[string]bool{}}
	w.db = open(t, driver, dsn)
	w.db.SetMaxOpenConns(4)
	var err error
	if w.store, err = sqlstore.Open(w.db, w.dialect); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.journal = journal(filepath.Join(t.TempDir(), "journal"))
	return w
}

// placeOf gives a new place's data source name, for any process.
func placeOf(t *testing.T, name string) (driver, dsn string) {
	t.Helper()
	switch name {
	case "sqlite":
		return "sqlite", "file:" + filepath.Join(t.TempDir(), "jobs.db") + "?" + sqlstore.SQLitePragmas()
	case "postgres":
		admin := open(t, "pgx", postgresDSN())
		reach(t, admin)
		schema := fresh()
		do(t, admin, "CREATE SCHEMA "+schema)
		t.Cleanup(func() { do(t, admin, "DROP SCHEMA "+schema+" CASCADE") })
		dsn := postgresDSN()
		if strings.Contains(dsn, "?") {
			dsn += "&"
		} else {
			dsn += "?"
		}
		return "pgx", dsn + "search_path=" + schema
	}
	config, err := mysql.ParseDSN(env("TASKMANAGER_TEST_MYSQL", "root@tcp(127.0.0.1:3306)/test"))
	if err != nil {
		t.Fatal(err)
	}
	admin := open(t, "mysql", config.FormatDSN())
	reach(t, admin)
	config.DBName = fresh()
	do(t, admin, "CREATE DATABASE "+config.DBName)
	t.Cleanup(func() { do(t, admin, "DROP DATABASE "+config.DBName) })
	return "mysql", config.FormatDSN()
}

// spec is a node in the world.
func (w *world) spec(name string, jobs ...jobSpec) *nodeSpec {
	for _, j := range jobs {
		w.jobs[j.Name] = j
	}
	return &nodeSpec{Driver: w.driver, DSN: w.dsn, Journal: string(w.journal), Name: name, Jobs: jobs}
}

// A feed is lines, to be waited for.
type feed struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed with the next line
	over  bool
}

func newFeed() *feed { return &feed{more: make(chan struct{})} }

func (f *feed) add(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, line)
	close(f.more)
	f.more = make(chan struct{})
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	close(f.more)
	f.more = make(chan struct{})
}

func (f *feed) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.lines, "\n")
}

// has counts lines with that beginning.
func (f *feed) has(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// await waits for the nth line with that beginning.
func (f *feed) await(t testing.TB, prefix string, nth int) string {
	t.Helper()
	late := time.After(eventually)
	for {
		f.mu.Lock()
		n := 0
		for _, l := range f.lines {
			if strings.HasPrefix(l, prefix) {
				if n++; n == nth {
					f.mu.Unlock()
					return l
				}
			}
		}
		more, over, all := f.more, f.over, strings.Join(f.lines, "\n")
		f.mu.Unlock()
		if over {
			t.Fatalf("it ended without %q; lines:\n%s", prefix, all)
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("no %q; lines:\n%s", prefix, all)
		}
	}
}

// A node is one in the test's process.
type node struct {
	*durable.Scheduler
	*feed
	log   *feed // what it logged
	store *faultStore
	stop  func()
}

// start starts a node in the test's process.
func (w *world) start(n *nodeSpec) *node {
	w.Helper()
	nd := &node{feed: newFeed(), log: newFeed()}
	if n.logger == nil {
		n.logger = slog.New(slog.NewTextHandler(writer(func(b []byte) { nd.log.add(string(bytes.TrimSpace(b))) }), nil))
	}
	s, f, closeDB, err := n.build(func(format string, args ...any) { nd.add(fmt.Sprintf(format, args...)) })
	if err != nil {
		w.Fatal(err)
	}
	nd.Scheduler, nd.store = s, f
	if err := s.Start(w.Context()); err != nil {
		w.Fatal(err)
	}
	nd.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			w.Errorf("Shutdown of %s = %v, want nil", n.Name, err)
		}
		if err := closeDB(); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(func() {
		nd.stop()
		if w.Failed() {
			w.Logf("log of %s:\n%s", n.Name, nd.log.text())
		}
	})
	return nd
}

type writer func([]byte)

func (f writer) Write(b []byte) (int, error) { f(b); return len(b), nil }

// A process is a node in a process of its own.
type process struct {
	*feed
	w     *world
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   *feed
	ended chan struct{}
	state *os.ProcessState
}

// launching bounds how many of them come up at once, in all tests: each computes for a
// while, and while dozens do the leases of the others lapse.
var launching = make(chan struct{}, 2)

// spawn starts a node in a process of its own.
func (w *world) spawn(n *nodeSpec) *process {
	w.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		w.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	p := &process{feed: newFeed(), log: newFeed(), w: w, cmd: exec.Command(exe), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		w.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		w.Fatal(err)
	}
	launching <- struct{}{}
	launched := sync.OnceFunc(func() { <-launching })
	if err := p.cmd.Start(); err != nil {
		launched()
		w.Fatal(err)
	}
	w.children++
	var pipes sync.WaitGroup
	pipes.Go(func() {
		scan(out, func(line string) {
			p.add(line)
			launched()
		})
	})
	pipes.Go(func() { scan(errs, p.log.add) })
	go func() {
		defer close(p.ended)
		pipes.Wait()
		launched() // it has said nothing
		_ = p.cmd.Wait()
		p.state = p.cmd.ProcessState
		p.end()
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if w.Failed() {
			w.Logf("output of %s:\n%s\nlog:\n%s", n.Name, p.text(), p.log.text())
		}
	})
	return p
}

func scan(r io.Reader, add func(line string)) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		add(s.Text())
	}
}

// kill is kill -9.
func (p *process) kill() {
	p.w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.w.Fatal(err)
	}
	p.died()
}

// died waits for the process's death by its own hand or another's.
func (p *process) died() {
	p.w.Helper()
	p.wait()
	if s, ok := p.state.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		p.w.Fatalf("the process ended with %v, want SIGKILL; lines:\n%s", p.state, p.text())
	}
	p.w.journal.add(entry{What: "killed", Pid: p.cmd.Process.Pid})
}

func (p *process) wait() {
	p.w.Helper()
	select {
	case <-p.ended:
	case <-time.After(eventually):
		p.w.Fatalf("the process does not end; lines:\n%s", p.text())
	}
}

// term is SIGTERM.
func (p *process) term() {
	p.w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.w.Fatal(err)
	}
}

// leave is SIGTERM, and waits for a clean end.
func (p *process) leave() {
	p.w.Helper()
	p.term()
	p.await(p.w, "stopped <nil>", 1)
	p.wait()
}

// freeze is SIGSTOP while no call of the store is under way.
func (p *process) freeze() {
	p.w.Helper()
	if _, err := io.WriteString(p.in, "freeze\n"); err != nil {
		p.w.Fatal(err)
	}
	p.await(p.w, "freezing", 1)
	p.w.poll("it is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	p.w.journal.add(entry{What: "frozen", Pid: p.cmd.Process.Pid})
}

func (p *process) thaw() {
	p.w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.w.Fatal(err)
	}
}

// poll waits until a thing is so that nobody tells of.
func (w *world) poll(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(eventually); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("never: %s\n%s", what, w.picture())
		}
	}
}

// number is the answer of a query that has one number for an answer, -1 if there is none.
func (w *world) number(query string, args ...any) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var n sql.NullInt64
	if err := w.db.QueryRowContext(ctx, w.rebind(query), args...).Scan(&n); err != nil || !n.Valid {
		return -1
	}
	return n.Int64
}

// picture is how things stand, for failures.
func (w *world) picture() string {
	var b strings.Builder
	for _, q := range []string{
		"SELECT job, name, state, kind, due_at, reason FROM taskmanager_trigger ORDER BY job, name LIMIT 50",
		"SELECT job, id, kind, state, node, fence FROM taskmanager_run ORDER BY job, id LIMIT 50",
		"SELECT job, id, kind, state, node, fence, message FROM taskmanager_history ORDER BY started_at DESC LIMIT 50",
		"SELECT id, name, dead, heartbeat_at, lease_until FROM taskmanager_node ORDER BY id LIMIT 50",
	} {
		fmt.Fprintln(&b, q)
		rows, err := w.db.Query(q)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]sql.NullString, len(columns))
			fields := make([]any, len(columns))
			for i := range values {
				fields[i] = &values[i]
			}
			if err := rows.Scan(fields...); err != nil {
				fmt.Fprintln(&b, err)
			}
			for _, v := range values {
				fmt.Fprint(&b, v.String, " | ")
			}
			fmt.Fprintln(&b)
		}
		rows.Close()
	}
	fmt.Fprintln(&b, "now", time.Now().UnixMicro())
	return b.String()
}

// settle waits until all that is due has been done.
func (w *world) settle() {
	w.Helper()
	// In one query: between two, what follows a run can come, and the run go.
	w.poll("all that is due is done", func() bool {
		return w.number("SELECT (SELECT count(*) FROM taskmanager_run) + (SELECT count(*) FROM taskmanager_trigger WHERE state IN (1, 2) OR state = 0 AND (kind <> 0 OR due_at <= ?))",
			time.Now().UnixMicro()) == 0
	})
}

// rebind has PostgreSQL take "?" for a parameter.
func (w *world) rebind(query string) string {
	if w.driver != "pgx" {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// call triggers a job by hand, and notes that it was acknowledged.
func (w *world) call(n *node, job string) string {
	w.Helper()
	id, err := n.Trigger(w.Context(), job, nil)
	if err != nil {
		w.Fatalf("Trigger(%s) = %v", job, err)
	}
	w.want[id] = true
	return id
}

// audit looks at the database and the journal, once all has settled and the nodes have
// stopped.
func (w *world) audit() {
	w.Helper()
	if w.Failed() {
		return
	}
	entries, err := w.journal.read()
	if err != nil {
		w.Fatal(err)
	}
	rows := w.history()
	w.auditFirings(entries, rows)
	w.auditFences(entries, rows)
	w.auditOverlaps(entries)
	w.auditRows()
	if w.Failed() {
		w.Log(w.picture())
	}
}

func (w *world) history() (all []durable.RunRow) {
	w.Helper()
	q := durable.RunQuery{Limit: 1000}
	for {
		rows, err := w.store.Runs(w.Context(), q)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, rows...)
		if len(rows) < 1000 {
			return all
		}
		q.Before = rows[len(rows)-1].Key()
	}
}

// auditFirings: at most one start of each firing, and with RequestsRecovery at least
// one; each firing has one outcome, and each run that started has a record.
func (w *world) auditFirings(entries []entry, rows []durable.RunRow) {
	w.Helper()
	starts, ends := map[string]int{}, map[string]entry{}
	started := map[string]int{}
	for _, e := range entries {
		switch e.What {
		case "start":
			starts[e.Key]++
			started[e.Run]++
		case "end":
			ends[e.Run] = e
		}
	}
	for id, n := range started {
		if n > 1 {
			w.Errorf("run %s started %d times", id, n)
		}
	}
	byID := map[string]durable.RunRow{}
	chains := map[string][]durable.RunRow{}
	for _, r := range rows {
		byID[r.ID] = r
		if r.State != durable.RunSkipped {
			chains[r.IdempotencyKey] = append(chains[r.IdempotencyKey], r)
		}
		if e, ended := ends[r.ID]; r.State == durable.RunSucceeded && (!ended || e.Cause != "") {
			w.Errorf("run %s of %s is recorded as succeeded, its handler says %+v", r.ID, r.Job, e)
		}
	}
	for _, e := range entries {
		if r, known := byID[e.Run]; e.What == "start" && (!known || r.IdempotencyKey != e.Key || !r.ScheduledAt.Equal(e.Scheduled) || r.Fence != e.Fence) {
			w.Errorf("run %+v is not recorded as it ran: %+v", e, r)
		}
	}
	for key, chain := range chains {
		job := w.jobs[chain[0].Job]
		first, succeeded := 0, 0
		for _, r := range chain {
			if r.Kind != durable.KindRecovery && r.Kind != durable.KindRetry {
				first++
			} else if of, there := byID[r.RetryOf]; !there || of.IdempotencyKey != r.IdempotencyKey || !of.ScheduledAt.Equal(r.ScheduledAt) {
				w.Errorf("run %s of %s recovers %q, which is another firing: %+v", r.ID, r.Job, r.RetryOf, of)
			}
			if r.State == durable.RunSucceeded {
				succeeded++
			}
		}
		switch {
		case first != 1:
			w.Errorf("firing %s was claimed %d times", key, first)
		case job.Recover && (starts[key] == 0 || succeeded != 1):
			w.Errorf("firing %s of a job with recovery: %d starts, succeeded %d times", key, starts[key], succeeded)
		case !job.Recover && (starts[key] > 1 || len(chain) != 1):
			w.Errorf("firing %s: %d starts, %d runs, want one at most", key, starts[key], len(chain))
		}
	}
	for id := range w.want {
		if _, there := byID[id]; !there {
			w.Errorf("call %s was acknowledged, and is lost", id)
		}
	}
	there := map[firing]bool{}
	for _, r := range rows {
		if r.Kind == durable.KindSchedule {
			there[firing{r.Job, r.ScheduledAt.UTC()}] = true
		}
	}
	missing := 0
	for _, f := range w.instants {
		if !there[f] {
			missing++
			if missing < 5 {
				w.Errorf("firing of %s at %v is missing", f.job, f.at)
			}
		}
	}
	if missing > 0 {
		w.Errorf("%d of %d firings are missing", missing, len(w.instants))
	}
}

// auditFences: tokens rise strictly with the runs of a job.
func (w *world) auditFences(entries []entry, rows []durable.RunRow) {
	w.Helper()
	last := map[string]int64{}
	for _, e := range entries {
		if e.What != "start" || w.jobs[e.Job].Concurrent {
			continue
		}
		if e.Fence <= last[e.Job] {
			w.Errorf("run %s of %s starts with fence %d after %d", e.Run, e.Job, e.Fence, last[e.Job])
		}
		last[e.Job] = e.Fence
	}
	seen := map[string]string{}
	for _, r := range rows {
		if r.State == durable.RunSkipped {
			continue
		}
		key := fmt.Sprint(r.Job, "/", r.Fence)
		if r.Fence <= 0 || seen[key] != "" {
			w.Errorf("fence %s is of runs %s and %s", key, seen[key], r.ID)
		}
		seen[key] = r.ID
	}
}

// auditOverlaps: no two handlers of an exclusive job at once, of those that could obey
// their context.
func (w *world) auditOverlaps(entries []entry) {
	w.Helper()
	frozen := map[int]bool{}
	for _, e := range entries {
		frozen[e.Pid] = frozen[e.Pid] || e.What == "frozen"
	}
	running := map[string]*entry{} // by job
	for i := range entries {
		e := &entries[i]
		if e.What == "killed" {
			for job, r := range running {
				if r.Pid == e.Pid {
					delete(running, job)
				}
			}
			continue
		}
		if w.jobs[e.Job].Concurrent || frozen[e.Pid] {
			continue
		}
		switch e.What {
		case "start":
			if r := running[e.Job]; r != nil {
				w.Errorf("runs %s and %s of %s overlap", r.Run, e.Run, e.Job)
			}
			running[e.Job] = e
		case "end":
			if r := running[e.Job]; r != nil && r.Run == e.Run {
				delete(running, e.Job)
			}
		}
	}
	for job, r := range running {
		w.Errorf("run %s of %s never ended", r.Run, job)
	}
}

// auditRows: what is left is nobody's that is dead, waits for nobody that is gone, and
// is not due.
func (w *world) auditRows() {
	w.Helper()
	for what, query := range map[string]string{
		"active runs of dead nodes":                 "SELECT count(*) FROM taskmanager_run r WHERE NOT EXISTS (SELECT 1 FROM taskmanager_node n WHERE n.id = r.node AND n.dead = 0)",
		"blocked triggers of jobs that do not run":  "SELECT count(*) FROM taskmanager_trigger t WHERE t.state = 2 AND NOT EXISTS (SELECT 1 FROM taskmanager_run r WHERE r.job = t.job)",
		"triggers that wait for a run that is over": "SELECT count(*) FROM taskmanager_trigger t WHERE t.state = 1 AND NOT EXISTS (SELECT 1 FROM taskmanager_run r WHERE r.trigger_id = t.id)",
		"one-shot triggers left":                    "SELECT count(*) FROM taskmanager_trigger t WHERE t.kind <> 0",
		"triggers in error":                         "SELECT count(*) FROM taskmanager_trigger t WHERE t.state = 5",
		"triggers without a due instant":            "SELECT count(*) FROM taskmanager_trigger t WHERE t.state = 0 AND t.due_at IS NULL",
	} {
		if n := w.number(query); n != 0 {
			w.Errorf("%d %s", n, what)
		}
	}
}

// runsOf are the records of a job's runs, oldest first.
func (w *world) runsOf(job string) []durable.RunRow {
	w.Helper()
	var list []durable.RunRow
	for _, r := range w.history() {
		if r.Job == job {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b durable.RunRow) int { return int(a.Fence - b.Fence) })
	return list
}

// startsOf counts how often handlers began runs of a job.
func (w *world) startsOf(job string) (n int) {
	w.Helper()
	entries, err := w.journal.read()
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range entries {
		if e.What == "start" && e.Job == job {
			n++
		}
	}
	return n
}
