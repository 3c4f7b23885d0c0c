package integration

import (
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
	"github.com/taskmanager-go/taskmanager/durable/storetest"
)

func TestStoresDoWhatTheSuiteSays(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		t.Parallel() // most of the time they wait for commits
		storetest.Run(t, func(t *testing.T, now func() time.Time) durable.Store {
			s, _ := d.store(t, pool, sqlstore.WithNow(now))
			return s
		})
	})
}
