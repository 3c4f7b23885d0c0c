package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// facts are all that a context tells of itself and of what is made from it.
type facts struct {
	err, cause, childErr, childCause, grandErr, grandCause error
	hasDeadline                                            bool
	done, childDone, afterFunc, detachedDone               bool
	value                                                  any
	detachedErr, detachedCause                             error
	childDeadline                                          bool
}

// probes is what is made from a context while it lives.
type probes struct {
	ctx, child, grand, detached context.Context
	ran                         chan struct{}
	stop                        func() bool
	end                         func() // what the probes' maker owes them
}

type probeKey struct{}

func probe(ctx context.Context) *probes {
	p := &probes{ctx: ctx, ran: make(chan struct{})}
	var cancel [2]context.CancelFunc
	p.child, cancel[0] = context.WithCancel(ctx)
	p.grand, cancel[1] = context.WithTimeout(context.WithValue(p.child, probeKey{}, "value"), 1000*time.Hour)
	p.end = func() { cancel[0](); cancel[1]() }
	p.detached = context.WithoutCancel(ctx)
	p.stop = context.AfterFunc(ctx, func() { close(p.ran) })
	return p
}

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (p *probes) facts() facts {
	synctest.Wait()
	_, hasDeadline := p.ctx.Deadline()
	_, childDeadline := p.child.Deadline()
	return facts{
		err: p.ctx.Err(), cause: context.Cause(p.ctx),
		childErr: p.child.Err(), childCause: context.Cause(p.child),
		grandErr: p.grand.Err(), grandCause: context.Cause(p.grand),
		hasDeadline: hasDeadline, childDeadline: childDeadline,
		done: isDone(p.ctx.Done()), childDone: isDone(p.child.Done()), detachedDone: isDone(p.detached.Done()),
		afterFunc: isDone(p.ran), value: p.grand.Value(probeKey{}),
		detachedErr: p.detached.Err(), detachedCause: context.Cause(p.detached),
	}
}

// A run's context is compared with the standard library's that ends in the same way
// at the same time.
func TestARunsContextBehavesAsTheStandardLibrarys(t *testing.T) {
	const limit = time.Hour
	standard := func(limited bool) (ctx context.Context, end func(cause error), runEnds func()) {
		parent, cancel := context.WithCancelCause(context.Background())
		if !limited {
			return parent, cancel, func() {}
		}
		ctx, done := context.WithTimeoutCause(parent, limit, taskmanager.ErrExecutionTimeout)
		return ctx, cancel, done
	}
	for _, limited := range []bool{false, true} {
		for _, early := range []bool{true, false} {
			for _, end := range []string{"nothing", "run ended", "stop", "close", "time over", "stop after the run", "close after the run"} {
				t.Run(fmt.Sprintf("limited %v, probed early %v, %s", limited, early, end), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := newManager(taskmanager.WithShutdownGrace(0))
						opts := []taskmanager.TaskOption{taskmanager.WithJitter(0)}
						if limited {
							opts = append(opts, taskmanager.WithExecutionTimeout(limit))
						}
						contexts, release := make(chan context.Context), make(chan struct{})
						h := must(m.ScheduleRecurring("a", 10*limit, func(ctx context.Context) error {
							contexts <- ctx
							<-release
							return nil
						}, opts...))
						_ = h.RunNow()
						got := <-contexts
						want, cancel, runEnds := standard(limited)
						var gotProbes, wantProbes *probes
						if early {
							gotProbes, wantProbes = probe(got), probe(want)
						}
						var once bool
						finish := func() {
							if !once {
								close(release)
								once = true
							}
							synctest.Wait()
						}
						switch end {
						case "run ended":
							finish()
							runEnds()
						case "stop":
							h.Stop()
							cancel(taskmanager.ErrStopped)
						case "close":
							_ = m.Close()
							cancel(taskmanager.ErrClosed)
						case "time over":
							time.Sleep(limit)
						case "stop after the run":
							finish()
							runEnds()
							h.Stop()
							cancel(taskmanager.ErrStopped)
						case "close after the run":
							finish()
							runEnds()
							_ = m.Close()
							cancel(taskmanager.ErrClosed)
						}
						synctest.Wait()
						if !early {
							gotProbes, wantProbes = probe(got), probe(want)
						}
						if g, w := gotProbes.facts(), wantProbes.facts(); g != w {
							t.Errorf("got  %+v,\nwant %+v", g, w)
						}
						ended := want.Err() != nil
						if g, w := gotProbes.stop(), wantProbes.stop(); g != w || w == ended {
							t.Errorf("stop of AfterFunc = %v, want %v", g, w)
						}
						if d, ok := got.Deadline(); ok != limited || ok && time.Until(d).Abs() > limit {
							t.Errorf("Deadline = %v, %v", d, ok)
						}
						finish()
						gotProbes.end()
						wantProbes.end()
						cancel(nil)
						runEnds()
						h.Stop()
						_ = m.Close()
					})
				})
			}
		}
	}
}

func TestADeadlineIsTheRunsStartPlusItsLimit(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, func(ctx context.Context) error {
		deadline, ok := ctx.Deadline()
		if want := w.clk.Now().Add(3 * time.Second); !ok || !deadline.Equal(want) {
			t.Errorf("Deadline = %v, %v, want %v", deadline, ok, want)
		}
		child, cancel := context.WithDeadline(ctx, deadline.Add(time.Hour))
		defer cancel()
		if d, _ := child.Deadline(); !d.Equal(deadline) {
			t.Errorf("a child with a later deadline has %v, want %v", d, deadline)
		}
		return nil
	}, taskmanager.WithExecutionTimeout(3*time.Second))
	w.advance(5 * time.Second)
	if got := h.Successes(); got != 5 {
		t.Errorf("%d runs, want 5", got)
	}
}

func TestWithoutALimitAllRunsShareOneContext(t *testing.T) {
	w := newWorld(t)
	seen := map[context.Context]bool{}
	fn := func(ctx context.Context) error { seen[ctx] = true; return nil }
	h := w.every("a", time.Second, fn)
	w.advance(10 * time.Second)
	if len(seen) != 1 {
		t.Errorf("%d contexts, want 1", len(seen))
	}
	w.stop(h)
	for ctx := range seen {
		if !errors.Is(context.Cause(ctx), taskmanager.ErrStopped) || ctx.Err() != context.Canceled {
			t.Errorf("after Stop: %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
	}
	clear(seen)
	w.every("b", time.Second, fn, taskmanager.WithExecutionTimeout(time.Minute))
	w.advance(10 * time.Second)
	if len(seen) != 10 {
		t.Errorf("with a limit: %d contexts, want one for each of 10 runs", len(seen))
	}
	for ctx := range seen { // kept past its run
		if ctx.Err() != context.Canceled || !isDone(ctx.Done()) {
			t.Errorf("after its run: %v", ctx.Err())
		}
	}
}

func TestAChildContextCostsNoGoroutine(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		m := newManager()
		var before, during int
		if _, err := m.ScheduleRecurring("a", time.Hour, nothing); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		h := must(m.ScheduleRecurring("b", time.Hour, func(ctx context.Context) error {
			defer close(ended)
			before = runtime.NumGoroutine()
			var cancels []context.CancelFunc
			for range 1000 {
				child, cancel := context.WithCancel(ctx)
				grand, cancel2 := context.WithTimeout(context.WithValue(child, probeKey{}, 1), time.Hour)
				stop := context.AfterFunc(grand, func() {})
				// As tracing does: a value first, then a child.
				other, cancel3 := context.WithCancel(context.WithValue(ctx, probeKey{}, 1))
				stop2 := context.AfterFunc(context.WithValue(other, probeKey{}, 2), func() {})
				cancels = append(cancels, cancel, cancel2, func() { stop() }, cancel3, func() { stop2() })
			}
			during = runtime.NumGoroutine()
			for i := range cancels {
				cancels[len(cancels)-1-i]()
			}
			return nil
		}, taskmanager.WithExecutionTimeout(limit)))
		if err := h.RunNow(); err != nil {
			t.Fatal(err)
		}
		<-ended
		if during > before+10 {
			t.Errorf("limit %v: %d goroutines for 1000 children", limit, during-before)
		}
		_ = m.Close()
	}
}

func TestAnAfterFuncThatWasStoppedIsNotCalled(t *testing.T) {
	w := newWorld(t)
	called := make(chan string, 2)
	h := w.every("a", time.Second, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { called <- "stopped one" })
		context.AfterFunc(ctx, func() { called <- "other" })
		if !stop() || stop() {
			t.Error("stop said wrongly whether it kept the function from being called")
		}
		return w.clk.Sleep(ctx, time.Hour)
	}, taskmanager.WithExecutionTimeout(time.Second), taskmanager.WithMaxRuns(1))
	w.advance(3 * time.Second)
	if got := <-called; got != "other" {
		t.Errorf("the %s was called", got)
	}
	if got := h.Timeouts(); got != 1 {
		t.Errorf("Timeouts = %d, want 1", got)
	}
}

func TestAContextThatOutlivesItsRunsEndsWithShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		kept := make(chan context.Context, 2)
		for _, lasts := range []time.Duration{0, 10 * time.Second} { // one ends before Shutdown, one during it
			must(m.ScheduleRecurring(lasts.String(), time.Minute, func(ctx context.Context) error {
				kept <- ctx
				time.Sleep(lasts)
				return ctx.Err()
			}, taskmanager.WithJitter(0)))
		}
		time.Sleep(65 * time.Second)
		if err := m.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		for range 2 {
			ctx := <-kept
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), taskmanager.ErrClosed) {
				t.Errorf("cause %v, want %v", context.Cause(ctx), taskmanager.ErrClosed)
			}
		}
		if totals := m.Totals(); totals.Successes != 2 {
			t.Errorf("Totals = %+v, want two successes", totals)
		}
	})
}
