module github.com/taskmanager-go/taskmanager/cronsched/ics

go 1.25.0

require (
	github.com/arran4/golang-ical v0.3.4
	github.com/taskmanager-go/taskmanager v0.0.0
	github.com/teambition/rrule-go v1.8.2
)

replace github.com/taskmanager-go/taskmanager => ../..
