// Package sqlstore keeps durable jobs in SQLite, PostgreSQL, MySQL or MariaDB.
//
//	db, err := sql.Open("pgx", "postgres://…")
//	store, err := sqlstore.Open(db, sqlstore.PostgreSQL())
//	err = store.Migrate(ctx)
//
// It imports no driver: bring your own, and keep the *sql.DB to yourself if you like;
// a pool of one connection is enough for the store to work.
//
// # How it works
//
// A claim first asks, in one query, which priorities have a trigger that is due, unless
// one has just left more than it could take. It begins a transaction only if there is one.
// What each transaction locks, and in which order, keeps nodes apart and avoids deadlocks:
//
//	claim   trigger rows (passes over locked ones)
//	        jobs, shared with other claims (likewise)
//	        gates of jobs that do not allow concurrency or are paused (likewise)
//	finish  gates of exclusive runs and of triggers that wait, in order of name
//	        run rows, trigger rows
//	edit    the job's gate, then its rows; the job for itself alone, if it no longer
//	        allows concurrency (on MySQL, if it changes at all)
//
// A claim waits for nobody, but for whoever is just adding a run of the same ID, or the
// first gate of a job.
//
// On SQLite there is one writer at a time, which needs none of this.
//
// Transactions are READ COMMITTED on the servers, and repeated when the server gives
// one up for a deadlock or the like.
//
// # Files
//
//	claim.go        what is due, and the locks of a claim; verdict.go: what it writes
//	ahead.go        where the next claim goes on
//	finish.go       the ends of runs
//	edit.go         changes of a job, also in the caller's transaction
//	nodes.go        heartbeats, dead nodes, leases
//	queries.go      jobs, runs, purge
//	dialect.go      what differs between databases; sqlite.go, postgres.go, mysql.go
//	batch.go        many rows in one statement; json.go: as JSON
//	rows.go         types as columns; fields.go: the kinds of columns
//	transaction.go  transactions and statements; failures.go: which are repeated
//	migrate.go      the tables
package sqlstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A Store is a durable.Store in an SQL database.
type Store struct {
	db      *sql.DB
	dialect Dialect
	config
	names *strings.Replacer // of tables and the like in statements

	checked atomic.Bool   // the schema was found to be the right one
	ahead   ahead         // of claims
	writer  chan struct{} // whoever writes, where there is one writer at a time
}

type config struct {
	prefix, schema string
	clock          func() time.Time // nil for the server's
}

// An Option changes what Open makes.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

// WithPrefix has the tables' names begin with prefix: small letters, digits and "_", at
// most 31, and no digit first. The default is "taskmanager_".
func WithPrefix(prefix string) Option { return option(func(c *config) { c.prefix = prefix }) }

// WithSchema has the tables in that schema of PostgreSQL, or that database of MySQL,
// which must exist, and whose name is like a prefix. The default is the connection's.
func WithSchema(schema string) Option { return option(func(c *config) { c.schema = schema }) }

// WithNow makes now the store's clock, for tests. The default is the clock of the
// database's server, so that nodes agree.
func WithNow(now func() time.Time) Option { return option(func(c *config) { c.clock = now }) }

var validName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}$`)

// Open returns a Store in db, which stays the caller's to close. It does not touch
// the database; see Migrate.
func Open(db *sql.DB, dialect Dialect, opts ...Option) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqlstore: db is nil")
	}
	s, err := newStore(dialect, opts)
	if err != nil {
		return nil, err
	}
	s.db = db
	return s, nil
}

func newStore(dialect Dialect, opts []Option) (*Store, error) {
	s := &Store{dialect: dialect, config: config{prefix: "taskmanager_"}, writer: make(chan struct{}, 1)}
	for _, o := range opts {
		if o != nil {
			o.apply(&s.config)
		}
	}
	var errs []error
	if dialect.name == "" {
		errs = append(errs, errors.New("sqlstore: no dialect"))
	}
	if !validName.MatchString(s.prefix) {
		errs = append(errs, fmt.Errorf("sqlstore: WithPrefix(%q): not %s", s.prefix, validName))
	}
	if s.schema != "" && (!dialect.schemas || !validName.MatchString(s.schema)) {
		errs = append(errs, fmt.Errorf("sqlstore: WithSchema(%q): not %s, or not for %s", s.schema, validName, dialect.name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if s.clock == nil && dialect.now == "" {
		s.clock = time.Now
	}
	before := s.prefix
	if s.schema != "" {
		before = s.schema + "." + s.prefix
	}
	var pairs []string
	for _, t := range []string{"job", "gate", "fence", "trigger", "run", "history", "node", "lease", "schema"} {
		pairs = append(pairs, "{"+t+"}", before+t)
	}
	s.names = strings.NewReplacer(append(pairs,
		"{prefix}", s.prefix,
		"{timeouts}", dialect.timeouts,
		"{lock}", dialect.lock,
		"{skip}", dialect.skip,
		"{share}", dialect.share,
		"{current}", cmp.Or(dialect.current, dialect.lock),
		"{number}", strings.ReplaceAll(dialect.number, "{fence}", before+"fence"),
		"{primary}", dialect.primary,
		"{nulls}", dialect.nullsFirst,
		"{ofjob}", strings.ReplaceAll(dialect.ofJob, "{prefix}", s.prefix),
		"{pastof}", strings.ReplaceAll(dialect.pastOf, "{prefix}", s.prefix),
		"{blocked}", strings.ReplaceAll(dialect.blocked, "{prefix}", s.prefix),
		"{due}", strings.ReplaceAll(dialect.due, "{prefix}", s.prefix))...)
	return s, nil
}

// Shared tells that other processes may see the same rows.
func (s *Store) Shared() bool { return true }

// sql makes a statement of its template.
func (s *Store) sql(text string) string {
	text = s.names.Replace(text)
	if strings.Contains(text, "{now}") {
		text = strings.ReplaceAll(text, "{now}", s.nowSQL())
	}
	if !s.dialect.numbered {
		return text
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		text = after
	}
}

// nowSQL is the time now in microseconds.
func (s *Store) nowSQL() string {
	if s.clock != nil {
		return strconv.FormatInt(s.clock().UnixMicro(), 10)
	}
	return s.dialect.now
}

var _ durable.Store = (*Store)(nil)
