package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// Claims of a backlog, which go on where the last one has stopped.

// Claims of a backlog make one query less than the first one: they do not look for where
// the backlog begins, but for one now and then.
func TestAClaimOfABacklogDoesNotLook(t *testing.T) {
	s, db := databases[1].store(t, 1)
	jobOf(t, s, "a", true)
	enqueueMany(t, s, "a", 1, 101)
	var made statements
	traced := tracedStore(t, db, &made)
	if err := calls(traced)["Jobs"](t.Context()); err != nil { // looks at the schema, too
		t.Fatal(err)
	}
	claim := func(from, to int) int {
		before := len(made.list)
		wantClaimed(t, claimAs(t, traced, "n", 2, runIt), idsOf(from, to)...)
		return len(made.list) - before
	}
	first := claim(1, 2)
	fewest := first
	for n := 3; n < 100; n += 2 {
		fewest = min(fewest, claim(n, n+1))
	}
	if fewest != first-1 {
		t.Errorf("claims made %d queries and more, want one less than the first, which made %d", fewest, first)
	}
	claim(101, 101)
	if last := claim(102, 101); last != 1 {
		t.Errorf("a claim with nothing left made %d queries, want 1", last)
	}
}

// What others write while there is a backlog is seen before its end, whatever else is
// claimed from the store: they may have added what comes first.
func TestABacklogDoesNotHideWhatOthersAdd(t *testing.T) {
	const many = 3000 // claims that take far longer than belief
	for _, d := range databases {
		for _, besides := range []struct {
			name   string
			claims int
			durable.ClaimRequest
		}{
			{name: "alone"},
			{"other handlers", 1, durable.ClaimRequest{Node: "m", Limit: 1, Handlers: []string{"none"}}},
			{"no slots", 4, durable.ClaimRequest{Node: "m", Handlers: []string{"h"}}},
		} {
			t.Run(d.name+"/"+besides.name, func(t *testing.T) {
				s, db := d.store(t, 2)
				jobOf(t, s, "a", true)
				enqueueMany(t, s, "a", 10, 10+many)
				wantClaimed(t, claimAs(t, s, "n", 1, runIt), idOf(10))
				other, err := sqlstore.Open(db, d.dialect)
				if err != nil {
					t.Fatal(err)
				}
				enqueueMany(t, other, "a", 1, 1)
				for range many {
					for range besides.claims {
						if _, err := s.Claim(t.Context(), besides.ClaimRequest); err != nil {
							t.Fatal(err)
						}
					}
					if claimAs(t, s, "n", 1, runIt)[0].Run.ID == idOf(1) {
						return
					}
				}
				t.Error("what others had added was claimed last of all, though it was due first")
			})
		}
	}
}

// A claim leaves what it was first to see due as it was, while another one takes what
// comes next: a claim after both begins with the first.
func TestWhatAClaimLeavesIsNotHiddenByAnother(t *testing.T) {
	plans := map[string]func(durable.Due) durable.Verdict{
		"left": func(durable.Due) durable.Verdict { return durable.Verdict{Leave: true} },
		"due again": func(due durable.Due) durable.Verdict {
			due.Trigger.Fired++
			return durable.Verdict{Trigger: due.Trigger}
		},
	}
	for _, d := range databases[1:] { // on SQLite, claims are one after the other
		for name, plan := range plans {
			for _, firstEnds := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/first=%v", d.name, name, firstEnds), func(t *testing.T) {
					s, _ := d.store(t, 6)
					jobOf(t, s, "a", true)
					enqueueMany(t, s, "a", 0, 20)
					wantClaimed(t, claimAs(t, s, "n", 1, runIt), idOf(0))
					one := standing(t, s, "m", plan)
					two := standing(t, s, "n", runIt)
					if firstEnds {
						one()
					}
					wantClaimed(t, two(), idOf(2))
					one()
					wantClaimed(t, claimAs(t, s, "n", 1, runIt), idOf(1))
				})
			}
		}
	}
}

// What this store adds while one of its claims is under way is for the next one.
func TestAClaimUnderWayDoesNotHideWhatIsAdded(t *testing.T) {
	s, db := databases[1].store(t, 1)
	jobOf(t, s, "a", true)
	enqueueMany(t, s, "a", 10, 20)
	p := &pause{text: "nextval", reached: make(chan struct{}), goOn: make(chan struct{})}
	traced := tracedStore(t, db, p)
	done := async(func() error {
		_, err := traced.Claim(t.Context(), durable.ClaimRequest{Node: "m", Limit: 2, Handlers: []string{"h"}, Plan: runIt})
		return err
	})
	select {
	case <-p.reached:
	case err := <-done:
		t.Fatalf("a claim did not look for its job: %v", err)
	}
	enqueueMany(t, traced, "a", 1, 1)
	close(p.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantClaimed(t, claimAs(t, traced, "n", 2, runIt), idOf(1), idOf(12))
}

// A pending is a trigger as the model has it.
type pending struct {
	n, version, priority int
	due                  time.Time
}

// becomes is what a claim makes of it: what follows, nil for a run.
func (p pending) becomes(now time.Time, leaving bool) *pending {
	p.version++
	switch {
	case leaving && p.n%7 == 0:
		p.version-- // it is left alone
	case p.version > 2:
		return nil
	case p.n%5 == 0:
		p.due = p.due.Add(3 * time.Second) // perhaps due at once
	case p.n%5 == 1:
		p.due = now.Add(2 * time.Second)
	case p.n%5 == 2:
		p.priority, p.due = (p.priority+4)%11, now.Add(time.Second)
	default:
		return nil
	}
	return &p
}

func (p pending) verdict(d durable.Due, leaving bool) durable.Verdict {
	is := p.becomes(d.Now, leaving)
	if is == nil {
		return runIt(d)
	}
	d.Trigger.DueAt, d.Trigger.Priority = is.due, is.priority
	return durable.Verdict{Leave: is.version == p.version, Trigger: d.Trigger}
}

// Claims take what is due in order of priority, instant and ID, whatever this store has
// changed and whatever has become due since the last one.
func TestClaimsKeepTheOrderOfABacklog(t *testing.T) {
	for _, d := range databases {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s/seed=%d", d.name, seed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, 1))
				now := time.UnixMicro(1_700_000_000_000_000).UTC()
				s, _ := d.store(t, 2, sqlstore.WithNow(func() time.Time { return now }))
				jobOf(t, s, "a", true)
				model, added := map[string]pending{}, 0
				add := func() {
					added++
					row := oneShot("a", added)
					row.Priority = []int{3, 5, 5, 5, 9}[r.IntN(5)]
					row.DueAt = now.Add(time.Duration(r.IntN(30)-20) * time.Second)
					enqueue(t, s, durable.EnqueueOnly, "a", row)
					model[row.ID] = pending{added, 1, row.Priority, row.DueAt}
				}
				for range 40 {
					add()
				}
				var except []string
				leaving := false
				for step := range 120 {
					switch n := r.IntN(20); {
					case n < 2:
						add()
					case n < 4:
						now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
					case n == 4:
						leaving = !leaving
					case n == 5:
						except = nil
						for id := range model {
							if r.IntN(4) == 0 {
								except = append(except, id)
							}
						}
						slices.Sort(except)
					default:
						request := durable.ClaimRequest{Node: "n", Limit: 1 + r.IntN(3), Handlers: []string{"h"}, Except: except}
						request.Plan = func(d durable.Due) durable.Verdict { return model[d.Trigger.ID].verdict(d, leaving) }
						res, err := s.Claim(t.Context(), request)
						var got, want []string
						for _, c := range res.Claimed {
							got = append(got, c.Run.ID)
						}
						for _, id := range firstOf(model, request, now) {
							if is := model[id].becomes(now, leaving); is != nil {
								model[id] = *is
							} else {
								want = append(want, id)
								delete(model, id)
							}
						}
						if err != nil || !slices.Equal(got, want) {
							t.Fatalf("step %d: Claim = %v, %v, want %v", step, got, err, want)
						}
					}
				}
			})
		}
	}
}

// firstOf are the triggers that a claim looks at.
func firstOf(model map[string]pending, r durable.ClaimRequest, now time.Time) (due []string) {
	for id, p := range model {
		if !p.due.After(now) && !slices.Contains(r.Except, id) {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		x, y := model[a], model[b]
		if x.priority != y.priority {
			return y.priority - x.priority
		}
		if c := x.due.Compare(y.due); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return due[:min(r.Limit, len(due))]
}
