package storeurl

import (
	"database/sql"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

func postgresTarget(text string, u *url.URL) (target, error) {
	t := target{name: nameOf(u), dialect: sqlstore.PostgreSQL(), secrets: secretsOf(u)}
	t.connect = func() (*sql.DB, *pgnotify.Waker, error) {
		config, err := pgx.ParseConfig(text)
		if err != nil {
			return nil, nil, err
		}
		if config.ConnectTimeout == 0 {
			config.ConnectTimeout = connectTimeout
		}
		if config.RuntimeParams["application_name"] == "" {
			config.RuntimeParams["application_name"] = "taskmanager"
		}
		waker, err := pgnotify.NewFromConfig(config, Channel)
		if err != nil {
			return nil, nil, err
		}
		return limited(stdlib.OpenDB(*config)), waker, nil
	}
	return t, nil
}

// limited sets the pool of a server's connections.
func limited(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxIdleTime(connIdleTime)
	db.SetConnMaxLifetime(connLifetime)
	return db
}
