package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/cronsched/ics"
)

// calendarFiles is the value of -calendar: the iCalendar file of each name.
type calendarFiles map[string]string

func (f calendarFiles) String() string { return "" }

func (f calendarFiles) Set(text string) error {
	name, file, ok := strings.Cut(text, "=")
	if !ok || name == "" || file == "" {
		return fmt.Errorf("%q is not NAME=FILE", text)
	}
	f[name] = file
	return nil
}

// resolve binds the schedule to its calendar, read in the schedule's zone. A
// schedule whose calendar has no file is left unresolved: the answer says so.
func (f calendarFiles) resolve(s cronsched.Schedule) (cronsched.Schedule, error) {
	name, _ := s.Calendar()
	file, ok := f[name]
	if !ok {
		return s, nil
	}
	r, err := os.Open(file)
	if err != nil {
		return s, err
	}
	defer r.Close()
	loc := time.UTC
	if e := s.Expression(); e != nil {
		loc = e.Location()
	}
	calendar, err := ics.Read(r, loc)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s.Resolve(func(string) (cronsched.Calendar, bool) { return calendar, true })
}
