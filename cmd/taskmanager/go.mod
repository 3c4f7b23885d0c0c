module github.com/taskmanager-go/taskmanager/cmd/taskmanager

go 1.26.0

require (
	github.com/taskmanager-go/taskmanager v0.0.0
	github.com/taskmanager-go/taskmanager/cronsched/ics v0.0.0
	github.com/taskmanager-go/taskmanager/durable/storeurl v0.0.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/arran4/golang-ical v0.3.4 // indirect
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/taskmanager-go/taskmanager/durable/pgnotify v0.0.0 // indirect
	github.com/teambition/rrule-go v1.8.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.62.0 // indirect
)

replace (
	github.com/taskmanager-go/taskmanager => ../..
	github.com/taskmanager-go/taskmanager/cronsched/ics => ../../cronsched/ics
	github.com/taskmanager-go/taskmanager/durable/pgnotify => ../../durable/pgnotify
	github.com/taskmanager-go/taskmanager/durable/storeurl => ../../durable/storeurl
)
