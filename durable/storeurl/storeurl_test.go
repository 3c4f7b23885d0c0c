package storeurl_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is in every URL of the tests for errors, and must not be in an error.
const secret = "s3cr3t"

func TestURLsThatAreNotUnderstoodSayWhatIsWanted(t *testing.T) {
	for url, want := range map[string]string{
		"":                                       "no URL",
		"sqlite:":                                "no file",
		"sqlite::memory:":                        "NewMemory",
		":memory:":                               "NewMemory",
		"sqlite:x.db?mode=memory":                "NewMemory",
		"sqlite:x.db?cache=shared&mode=%6demory": "NewMemory",
		"oracle://u:s3cr3t@h/db":                 `unknown scheme "oracle"`,
		"root:s3cr3t@tcp(127.0.0.1:3306)/db":     "unknown scheme",
		"root@tcp(127.0.0.1:3306)/s3cr3t":        "data source name",
		"host=h user=u password=s3cr3t":          "data source name",
		"postgres://u:s3cr3t%zz@h/db":            "special characters",
		"mysql://u:a@s3cr3t/x:y@h:p/db":          "special characters",
		"postgres://u:p#s3cr3t@h:x/db":           "special characters",
		"mysql:u:s3cr3t@h/db":                    "special characters",
	} {
		_, err := storeurl.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("Open(%q) = %v, want an error with %q, without the password", url, err, want)
		}
		if _, err2 := storeurl.Dialect(url); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("Dialect(%q) = %v, want the same", url, err2)
		}
	}
}

func TestNoErrorTellsThePassword(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:s3cr3t@127.0.0.1:1/db":                  "storeurl: postgres://u@127.0.0.1:1/db: ",
		"postgres://u:s3cr3t@127.0.0.1:1/db?sslmode=s3cr3t":   "sslmode",
		"postgres://127.0.0.1:1/db?password=s3cr3t&sslmode=x": "sslmode",
		"mysql://u:s3cr3t@127.0.0.1:1/db":                     "storeurl: mysql://u@127.0.0.1:1/db: ",
		"mysql://u:s3cr3t@127.0.0.1:1/db?timeout=s3cr3t":      "invalid duration",
		"mysql://u:s3cr3t@127.0.0.1:1/db?tls=s3cr3t":          "xxxxx",
	} {
		_, err := storeurl.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("Open(%q) = %v, want an error with %q, without the password", url, err, want)
		}
	}
}

func TestAFileOfAnyNameIsMadeWithTheSettingsOfTheStore(t *testing.T) {
	dir := t.TempDir()
	for i, prefix := range []string{"", "sqlite:", "sqlite://"} {
		file := filepath.Join(dir, fmt.Sprintf("a b%%20#%d.db", i))
		if _, err := storeurl.OpenExisting(t.Context(), prefix+file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("OpenExisting(%q) = %v, want %v", prefix+file, err, fs.ErrNotExist)
		}
		o, err := storeurl.Open(t.Context(), prefix+file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
		use(t, o)
		var mode string
		if err := o.DB.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("journal_mode %q, %v, want wal", mode, err)
		}
		if got, want := o.String(), "sqlite:"+file; got != want || o.Waker != nil {
			t.Errorf("String() = %q, Waker %v, want %q and none", got, o.Waker, want)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if o, err = storeurl.OpenExisting(t.Context(), prefix+file); err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if o, err := storeurl.Open(t.Context(), filepath.Join(dir, "none", "x.db")); err == nil {
		t.Errorf("Open of a file in no folder = %v, want an error", o)
	}
}

func TestParametersOfAFileWinOverTheDefaults(t *testing.T) {
	o, err := storeurl.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=synchronous(FULL)")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var mode int
	if err := o.DB.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&mode); err != nil || mode != 2 {
		t.Errorf("synchronous = %d, %v, want 2", mode, err)
	}
}

// use migrates and has a scheduler of the store do something.
func use(t *testing.T, o *storeurl.Opened) {
	t.Helper()
	if err := o.Store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := durable.New(o.Store, durable.Config{Waker: o.Waker, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Start(t.Context()), s.Shutdown(context.WithoutCancel(t.Context()))); err != nil {
		t.Error(err)
	}
	jobs, err := s.Jobs(t.Context(), durable.JobQuery{})
	if err != nil || len(jobs) == 0 || jobs[0].Job.Name != durable.HousekeepingJob {
		t.Errorf("jobs %v, %v, want %s", jobs, err, durable.HousekeepingJob)
	}
}

// A file's first connection makes it one with a write-ahead log, for which it must be
// alone: of programs that start at the same moment, none fails for that.
func TestANewFileCanBeOpenedByManyAtOnce(t *testing.T) {
	for range 40 {
		url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				o, err := storeurl.Open(t.Context(), url)
				if err != nil {
					t.Errorf("Open = %v, want nil", err)
					return
				}
				if err := o.Close(); err != nil {
					t.Errorf("Close = %v, want nil", err)
				}
			})
		}
		wg.Wait()
	}
}
