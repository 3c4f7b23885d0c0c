package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// summarize is a recurring task that says how things stand in the whole cluster: it
// reads what any node, or an admin page, could read.
func (n *node) summarize(ctx context.Context) error {
	nodes, now, err := n.store.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	jobs, err := n.scheduler.Jobs(ctx, durable.JobQuery{})
	if err != nil {
		return err
	}
	minute, err := n.runsSince(ctx, now.Add(-time.Minute))
	if err != nil {
		return err
	}
	names := map[string]string{}
	var alive []string
	for _, node := range nodes {
		names[node.ID] = node.Name
		if node.Dead || !node.LeaseUntil.After(now) {
			continue
		}
		name := node.Name
		if node.ID == n.leader.id() {
			name += " (leads)"
		}
		alive = append(alive, name)
	}
	shares := map[string]int{}
	for _, r := range minute {
		shares[nodeName(r.Node)]++
	}
	line := fmt.Sprintf("--- alive: %s | runs of the last minute: %s", strings.Join(alive, ", "), cmp.Or(countsOf(shares), "none"))
	if s := runningNow(jobs, names); s != "" {
		line += " | running: " + s
	}
	n.screen.line("%s%s", line, nextDue(jobs, now))
	return nil
}

// runningNow lists the runs that are under way.
func runningNow(jobs []durable.JobState, names map[string]string) string {
	var list []string
	for _, j := range jobs {
		for _, r := range j.Running {
			list = append(list, fmt.Sprintf("%s on %s", r.Job, cmp.Or(names[r.Node], r.Node)))
		}
	}
	return strings.Join(list, ", ")
}

// nextDue says what comes next.
func nextDue(jobs []durable.JobState, now time.Time) string {
	var next durable.TriggerRow
	for _, j := range jobs {
		for _, t := range j.Triggers {
			if t.State == durable.StateWaiting && !t.DueAt.IsZero() && (next.DueAt.IsZero() || t.DueAt.Before(next.DueAt)) {
				next = t
			}
		}
	}
	if next.DueAt.IsZero() {
		return ""
	}
	return fmt.Sprintf(" | next: %s in %v", next.Job, max(0, next.DueAt.Sub(now)).Round(100*time.Millisecond))
}

// runsSince reads the history page by page.
func (n *node) runsSince(ctx context.Context, from time.Time) (all []durable.RunRow, err error) {
	q := durable.RunQuery{From: from, Limit: 500}
	for {
		page, err := n.scheduler.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < q.Limit {
			return all, nil
		}
		q.Before = page[len(page)-1].Key()
	}
}

// finalReport is the last word: what has run since this node's start, and where.
func (n *node) finalReport(ctx context.Context) error {
	runs, err := n.runsSince(ctx, n.start)
	if err != nil {
		return err
	}
	type place struct{ job, node string }
	states := map[place]map[string]int{}
	for _, r := range runs {
		p := place{r.Job, nodeName(r.Node)}
		if states[p] == nil {
			states[p] = map[string]int{}
		}
		states[p][r.State.String()]++
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nJOB\tNODE\tRUNS SINCE THIS NODE'S START\n")
	for _, p := range slices.SortedFunc(maps.Keys(states), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.node, b.node))
	}) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.job, p.node, countsOf(states[p]))
	}
	w.Flush()
	_, err = n.screen.Write([]byte(b.String()))
	return err
}

// nodeName is a node's name: its ID without the suffix of this life.
func nodeName(id string) string {
	if i := strings.LastIndexByte(id, '-'); i > 0 {
		return id[:i]
	}
	return id
}

func countsOf(counts map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(list, ", ")
}
