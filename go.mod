module github.com/taskmanager-go/taskmanager

go 1.25.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/cenkalti/backoff/v4 v4.3.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.10.0
)
