module github.com/taskmanager-go/taskmanager/cmd/taskmanager

go 1.25.0

require (
	github.com/taskmanager-go/taskmanager v0.0.0
	github.com/taskmanager-go/taskmanager/cronsched/ics v0.0.0
)

require (
	github.com/arran4/golang-ical v0.3.4 // indirect
	github.com/teambition/rrule-go v1.8.2 // indirect
)

replace (
	github.com/taskmanager-go/taskmanager => ../..
	github.com/taskmanager-go/taskmanager/cronsched/ics => ../../cronsched/ics
)
