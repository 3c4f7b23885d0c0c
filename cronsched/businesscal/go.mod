module github.com/taskmanager-go/taskmanager/cronsched/businesscal

go 1.25.0

require (
	github.com/rickar/cal/v2 v2.1.13
	github.com/taskmanager-go/taskmanager v0.0.0
)

replace github.com/taskmanager-go/taskmanager => ../..
