package storeurl_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

// A place of its own on each server that there is. $TASKMANAGER_TEST_POSTGRES and
// $TASKMANAGER_TEST_MYSQL_URL have their URLs.
func TestServers(t *testing.T) {
	name := fmt.Sprintf("tm_url_%d_%08x", os.Getpid(), rand.Uint32())
	postgres := env("TASKMANAGER_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
	with := "?"
	if strings.Contains(postgres, "?") {
		with = "&"
	}
	mysql := env("TASKMANAGER_TEST_MYSQL_URL", "mysql://root@127.0.0.1:3306/")
	for _, c := range []struct {
		name, url, own string // own is the URL of the place
		make, drop     string
		waker          bool
	}{
		{"postgres", postgres, postgres + with + "search_path=" + name, "CREATE SCHEMA " + name, "DROP SCHEMA " + name + " CASCADE", true},
		{"mysql", mysql, mysql[:strings.LastIndexByte(mysql, '/')+1] + name, "CREATE DATABASE " + name, "DROP DATABASE " + name, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			admin, err := storeurl.Open(t.Context(), c.url)
			if err != nil {
				t.Skip("no server: ", err)
			}
			defer admin.Close()
			if _, err := admin.DB.ExecContext(t.Context(), c.make); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := admin.DB.ExecContext(context.WithoutCancel(t.Context()), c.drop); err != nil {
					t.Error(err)
				}
			}()
			o, err := storeurl.OpenExisting(t.Context(), c.own)
			if err != nil {
				t.Fatal(err)
			}
			if (o.Waker != nil) != c.waker {
				t.Errorf("Waker = %v, want one: %v", o.Waker, c.waker)
			}
			use(t, o)
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
