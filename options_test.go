package taskmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// refused lists the options that an error names, in order.
func refused(err error) (names []string) {
	var walk func(error)
	walk = func(err error) {
		if e, ok := err.(*taskmanager.OptionError); ok {
			names = append(names, e.Option)
		} else if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	return names
}

func TestEveryTaskOptionHasItsDefaultAndItsPlace(t *testing.T) {
	at := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		field string
		def   any
		with  taskmanager.TaskOption
		want  any
	}{
		{"Tag", "", taskmanager.WithTag("t"), "t"},
		{"NonReentrant", true, taskmanager.WithNonReentrant(false), false},
		{"Overlap", taskmanager.Skip, taskmanager.WithOverlap(taskmanager.CatchUp(3)), taskmanager.CatchUp(3)},
		{"Jitter", 250 * time.Millisecond, taskmanager.WithJitter(time.Second), time.Second},
		{"Jitter", 250 * time.Millisecond, taskmanager.WithJitter(-time.Second), time.Duration(0)},
		{"ExecutionTimeout", time.Duration(0), taskmanager.WithExecutionTimeout(time.Second), time.Second},
		{"FailuresBeforeBackoff", 1, taskmanager.WithFailuresBeforeBackoff(7), 7},
		{"BackoffCap", 15 * time.Second, taskmanager.WithBackoffCap(time.Minute), time.Minute},
		{"MaxRuns", uint64(0), taskmanager.WithMaxRuns(9), uint64(9)},
		{"EndAt", time.Time{}, taskmanager.WithEndAt(at), at},
		{"Immediately", false, taskmanager.WithImmediately(), true},
		{"FixedDelay", false, taskmanager.WithFixedDelay(), true},
		{"Paused", false, taskmanager.WithPaused(), true},
		{"Precise", false, taskmanager.WithPrecise(), true},
		{"SkipOverLimit", false, taskmanager.WithSkipOverLimit(), true},
	} {
		w := newWorld(t)
		field := func(name string, opts ...taskmanager.TaskOption) any {
			h, err := w.m.ScheduleRecurring(name, time.Minute, nothing, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return reflect.ValueOf(h.Options()).FieldByName(test.field).Interface()
		}
		w.others = true
		if got := field("default"); got != test.def {
			t.Errorf("%s is %v by default, want %v", test.field, got, test.def)
		}
		if got := field("given", test.with); got != test.want {
			t.Errorf("%s is %v when given, want %v", test.field, got, test.want)
		}
		// The same as a default of the manager's, and undone by the task's own struct.
		m, _ := tasktest.New(t, taskmanager.WithDefaultTaskOptions(test.with))
		h := must(m.ScheduleRecurring("a", time.Minute, nothing))
		if got := reflect.ValueOf(h.Options()).FieldByName(test.field).Interface(); got != test.want {
			t.Errorf("%s is %v with a default of the manager's, want %v", test.field, got, test.want)
		}
		h = must(m.ScheduleRecurring("b", time.Minute, nothing, taskmanager.DefaultRecurringOptions()))
		if got := reflect.ValueOf(h.Options()).FieldByName(test.field).Interface(); got != test.def {
			t.Errorf("%s is %v with the defaults as a struct, want %v", test.field, got, test.def)
		}
	}
}

func TestABadTaskOptionIsNamedAndNothingIsScheduled(t *testing.T) {
	noon, one := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 13, 0, 0, 0, time.UTC)
	policy := taskmanager.WithBackoff(func() backoff.BackOff { return &backoff.ZeroBackOff{} })
	type opts []taskmanager.TaskOption
	for _, test := range []struct {
		opts opts
		want []string
		text string // in the error
	}{
		{opts{taskmanager.WithExecutionTimeout(-1)}, []string{"ExecutionTimeout"}, "-1ns"},
		{opts{taskmanager.WithFailuresBeforeBackoff(0)}, []string{"FailuresBeforeBackoff"}, " 0:"},
		{opts{taskmanager.WithFailuresBeforeBackoff(-3)}, []string{"FailuresBeforeBackoff"}, "-3"},
		{opts{taskmanager.WithBackoffCap(-time.Second)}, []string{"BackoffCap"}, "-1s"},
		{opts{policy, taskmanager.WithBackoffCap(time.Second)}, []string{"BackoffCap"}, "1s"},
		{opts{taskmanager.WithOverlap(taskmanager.CatchUp(0))}, []string{"Overlap"}, "catch-up 0"},
		{opts{taskmanager.WithOverlap(taskmanager.CatchUp(-1))}, []string{"Overlap"}, "catch-up -1"},
		{opts{taskmanager.WithOverlap(taskmanager.Coalesce), taskmanager.WithNonReentrant(false)}, []string{"Overlap"}, "coalesce"},
		{opts{taskmanager.WithOverlap(taskmanager.CatchUp(2)), taskmanager.WithNonReentrant(false)}, []string{"Overlap"}, "catch-up 2"},
		{opts{taskmanager.WithOverlap(taskmanager.CatchUp(2)), taskmanager.WithFixedDelay()}, []string{"Overlap"}, "FixedDelay"},
		{opts{taskmanager.WithOverlap(taskmanager.Coalesce), taskmanager.WithFixedDelay()}, []string{"Overlap"}, "FixedDelay"},
		{opts{taskmanager.WithFixedDelay(), taskmanager.WithNonReentrant(false)}, []string{"FixedDelay"}, "NonReentrant"},
		{opts{taskmanager.WithStartAt(one), taskmanager.WithEndAt(noon)}, []string{"EndAt"}, "12:00:00"},
		{opts{nil}, []string{"TaskOption"}, "nil"},
		{opts{taskmanager.RecurringOptions{}}, []string{"FailuresBeforeBackoff"}, " 0:"},
		{opts{taskmanager.WithExecutionTimeout(-1), nil, taskmanager.WithBackoffCap(-1), taskmanager.WithFailuresBeforeBackoff(-1)},
			[]string{"TaskOption", "ExecutionTimeout", "FailuresBeforeBackoff", "BackoffCap"}, "-1ns"},
	} {
		w := newWorld(t)
		h, err := w.m.ScheduleRecurring("a", time.Second, nothing, test.opts...)
		if got := refused(err); !slices.Equal(got, test.want) || h != nil {
			t.Errorf("refused %v, want %v (%v)", got, test.want, err)
			continue
		}
		if !errors.Is(err, taskmanager.ErrInvalidOption) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%v: want %q in it", err, test.text)
		}
		if _, err := w.m.Schedule("a", everySecond{}, nothing, test.opts...); !errors.Is(err, taskmanager.ErrInvalidOption) {
			t.Errorf("Schedule = %v, want %v", err, taskmanager.ErrInvalidOption)
		}
		if m, err := taskmanager.New(taskmanager.WithDefaultTaskOptions(test.opts...)); m != nil || !slices.Equal(refused(err), test.want) {
			t.Errorf("as defaults of a manager: %v, want %v refused", err, test.want)
		}
		for range w.m.Tasks() {
			t.Error("something is scheduled")
		}
		w.every("a", time.Second, nothing) // its name is not taken
	}
}

func TestABadArgumentIsNamed(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"", " ", "\t\n"} {
		_, err := w.m.ScheduleRecurring(name, time.Second, nothing)
		if got := refused(err); !slices.Equal(got, []string{"name"}) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, interval := range []time.Duration{0, -1, math.MinInt64} {
		_, err := w.m.ScheduleTicks("a", interval, func(context.Context, taskmanager.Tick) error { return nil })
		if got := refused(err); !slices.Equal(got, []string{"interval"}) || !strings.Contains(err.Error(), interval.String()) {
			t.Errorf("interval %v: %v", interval, err)
		}
	}
	_, err := w.m.ScheduleRecurring("", 0, nil, taskmanager.WithBackoffCap(-1))
	if got, want := refused(err), []string{"name", "fn", "interval", "BackoffCap"}; !slices.Equal(got, want) {
		t.Errorf("all at once: refused %v, want %v", got, want)
	}
	_, err = w.m.ScheduleTicks("a", time.Second, nil)
	if got := refused(err); !slices.Equal(got, []string{"fn"}) {
		t.Errorf("nil TickFunc: refused %v", got)
	}
	_, err = w.m.Schedule(" ", nil, nil)
	if got, want := refused(err), []string{"name", "fn", "schedule"}; !slices.Equal(got, want) {
		t.Errorf("Schedule: refused %v, want %v", got, want)
	}
	for opt, with := range map[string]taskmanager.TaskOption{"FixedDelay": taskmanager.WithFixedDelay(), "Immediately": taskmanager.WithImmediately()} {
		_, err := w.m.Schedule("a", everySecond{}, nothing, with)
		if got := refused(err); !slices.Equal(got, []string{opt}) {
			t.Errorf("Schedule with %s: refused %v", opt, got)
		}
	}
	for opt, with := range map[string]taskmanager.TaskOption{"NonReentrant": taskmanager.WithNonReentrant(false), "Overlap": taskmanager.WithOverlap(taskmanager.Coalesce)} {
		_, err := w.m.Schedule("a", delaySchedule{time.Second, 0}, nothing, with)
		if got := refused(err); !slices.Equal(got, []string{opt}) {
			t.Errorf("fixed-delay schedule: refused %v, want %s", got, opt)
		}
	}
}

func TestABadManagerOptionIsNamedAndThereIsNoManager(t *testing.T) {
	type opts []taskmanager.Option
	for _, test := range []struct {
		opts opts
		want []string
	}{
		{opts{taskmanager.WithClock(nil)}, []string{"Clock"}},
		{opts{taskmanager.WithLogger(nil)}, []string{"Logger"}},
		{opts{taskmanager.WithBackoffBase(-1)}, []string{"BackoffBase"}},
		{opts{taskmanager.WithBackoffMaxPower(-1)}, []string{"BackoffMaxPower"}},
		{opts{taskmanager.WithMaxConcurrentRuns(-1)}, []string{"MaxConcurrentRuns"}},
		{opts{taskmanager.WithTagLimit("x", 0)}, []string{"TagLimit"}},
		{opts{taskmanager.WithTagLimit("x", -1)}, []string{"TagLimit"}},
		{opts{taskmanager.WithShutdownGrace(-1)}, []string{"ShutdownGrace"}},
		{opts{taskmanager.WithTimerSlack(-1)}, []string{"TimerSlack"}},
		{opts{nil}, []string{"Option"}},
		{opts{taskmanager.WithBackoffBase(-1), nil, taskmanager.WithTimerSlack(-1), taskmanager.WithDefaultTaskOptions(taskmanager.WithBackoffCap(-1))},
			[]string{"Option", "BackoffBase", "TimerSlack", "BackoffCap"}},
	} {
		m, err := taskmanager.New(test.opts...)
		if got := refused(err); m != nil || !slices.Equal(got, test.want) || !errors.Is(err, taskmanager.ErrInvalidOption) {
			t.Errorf("refused %v, want %v (%v)", got, test.want, err)
		}
	}
	m, err := taskmanager.New(taskmanager.WithObserver(nil), taskmanager.WithMaxConcurrentRuns(0), taskmanager.WithShutdownGrace(0),
		taskmanager.WithBackoffBase(0), taskmanager.WithBackoffMaxPower(0), taskmanager.WithTimerSlack(0), taskmanager.WithDefaultTaskOptions())
	if err != nil {
		t.Fatalf("zero values: %v", err)
	}
	_ = m.Close()
}

func TestManagerBackoffOptionsShapeTheDelay(t *testing.T) {
	for _, test := range []struct {
		opts []taskmanager.Option
		task []taskmanager.TaskOption
		most time.Duration // of the delay after the tenth failure
	}{
		{nil, nil, 15 * time.Second},
		{nil, []taskmanager.TaskOption{taskmanager.WithBackoffCap(time.Hour)}, 32 * time.Second},
		{[]taskmanager.Option{taskmanager.WithBackoffBase(time.Minute)}, nil, 15 * time.Second},
		{[]taskmanager.Option{taskmanager.WithBackoffBase(0)}, nil, 0},
		{[]taskmanager.Option{taskmanager.WithBackoffMaxPower(1)}, nil, 2 * time.Second},
	} {
		w := newWorld(t, test.opts...)
		var longest time.Duration
		for i := range 50 {
			var failedAt time.Time
			n := 0
			w.every(fmt.Sprint(i), time.Millisecond, func(context.Context) error {
				if n++; n == 11 {
					longest = max(longest, w.clk.Now().Sub(failedAt))
				}
				failedAt = w.clk.Now()
				return errBoom
			}, append(test.task, taskmanager.WithMaxRuns(11))...)
		}
		w.advance(10 * time.Minute)
		// 50 uniform delays all below half of the ceiling: 1 in 10^15.
		if longest > test.most+time.Millisecond || longest < test.most/2 {
			t.Errorf("longest of 50 delays %v, want up to %v", longest, test.most)
		}
	}
}

func TestAPolicyOfATasksOwnTakesThePlaceOfADefaultCap(t *testing.T) {
	m, _ := tasktest.New(t, taskmanager.WithDefaultTaskOptions(taskmanager.WithBackoffCap(time.Minute)))
	h, err := m.ScheduleRecurring("a", time.Second, nothing, taskmanager.WithBackoff(func() backoff.BackOff { return &backoff.ZeroBackOff{} }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.ScheduleRecurring("b", time.Second, nothing, h.Options()); err != nil {
		t.Errorf("the effective options of one task are refused for another: %v", err)
	}
}

func TestOptionsGoToJSONAndBack(t *testing.T) {
	full := taskmanager.RecurringOptions{
		Tag: "t", NonReentrant: true, Overlap: taskmanager.CatchUp(3), Jitter: 90 * time.Second, ExecutionTimeout: 1500 * time.Millisecond,
		FailuresBeforeBackoff: 2, BackoffCap: time.Hour, MaxRuns: 9,
		StartAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), EndAt: time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC),
		Immediately: true, Paused: true, Precise: true, SkipOverLimit: true,
	}
	for _, o := range []taskmanager.RecurringOptions{{}, taskmanager.DefaultRecurringOptions(), full} {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		back := full // every field is to be set
		back.StartAt, back.EndAt, back.Tag = time.Time{}, time.Time{}, ""
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, o) {
			t.Errorf("%s\nback %+v,\nwant %+v", text, back, o)
		}
	}
	text := must(json.Marshal(full))
	for _, want := range []string{`"jitter":"1m30s"`, `"executionTimeout":"1.5s"`, `"backoffCap":"1h0m0s"`, `"overlap":"catch-up 3"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: want %s in it", text, want)
		}
	}
	o := taskmanager.DefaultRecurringOptions()
	if err := json.Unmarshal([]byte(`{"tag":"x","overlap":"coalesce","executionTimeout":"2s"}`), &o); err != nil {
		t.Fatal(err)
	}
	want := taskmanager.DefaultRecurringOptions()
	want.Tag, want.Overlap, want.ExecutionTimeout = "x", taskmanager.Coalesce, 2*time.Second
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want what was not mentioned left alone: %+v", o, want)
	}
	for _, bad := range []string{`{"jitter":250}`, `{"jitter":"long"}`, `{"unknown":1}`, `{"overlap":"catch-up 0"}`, `{"overlap":"catch-up"}`, `{"maxRuns":-1}`, `[]`} {
		before := o
		if err := json.Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%s is taken", bad)
		}
		if !reflect.DeepEqual(o, before) {
			t.Errorf("%s left half of itself: %+v", bad, o)
		}
	}
}

func TestADurationInJSONThatIsNoneIsRefusedByName(t *testing.T) {
	for text, want := range map[string]string{
		`{"jitter":250}`:              `taskmanager: Jitter 250: want text such as "250ms"`,
		`{"jitter":"long"}`:           `taskmanager: Jitter "long": want text such as "250ms"`,
		`{"executionTimeout":true}`:   `taskmanager: ExecutionTimeout true: want text such as "250ms"`,
		`{"tag":"x","backoffCap":""}`: `taskmanager: BackoffCap "": want text such as "250ms"`,
	} {
		o := taskmanager.DefaultRecurringOptions()
		err := json.Unmarshal([]byte(text), &o)
		var bad *taskmanager.OptionError
		if !errors.As(err, &bad) || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	o := taskmanager.DefaultRecurringOptions()
	if err := json.Unmarshal([]byte(`{"jitter":null}`), &o); err != nil || o.Jitter != taskmanager.DefaultJitter {
		t.Errorf("null: jitter %v, %v, want it left alone", o.Jitter, err)
	}
}

func TestOverlapPoliciesHaveText(t *testing.T) {
	for _, p := range []taskmanager.OverlapPolicy{taskmanager.Skip, taskmanager.Coalesce, taskmanager.CatchUp(1), taskmanager.CatchUp(1000)} {
		var back taskmanager.OverlapPolicy
		if err := back.UnmarshalText(must(p.MarshalText())); err != nil || back != p {
			t.Errorf("%v comes back as %v, %v", p, back, err)
		}
	}
	for _, bad := range []string{"Skip", "catch-up -1", "catch-up 1x", "catch-up  1", "none"} {
		var p taskmanager.OverlapPolicy
		if err := p.UnmarshalText([]byte(bad)); !errors.Is(err, taskmanager.ErrInvalidOption) {
			t.Errorf("%q: %v, want %v", bad, err, taskmanager.ErrInvalidOption)
		}
	}
}

// Random options are refused by name, or make a task that keeps its ledger.
func FuzzOptions(f *testing.F) {
	f.Add(int64(time.Second), uint16(0), int64(0), int64(0), 1, int64(time.Second), 0, uint8(0), int64(0), int64(0), int64(0))
	f.Add(int64(10*time.Millisecond), uint16(0xffff), int64(25*time.Millisecond), int64(15*time.Millisecond), 2, int64(0), 3, uint8(5), int64(time.Second), int64(2*time.Second), int64(7))
	f.Add(int64(1), uint16(1<<6), int64(-1), int64(-1), -1, int64(-1), -1, uint8(9), int64(5), int64(3), int64(1))
	f.Add(int64(math.MaxInt64), uint16(1<<5), int64(math.MaxInt64), int64(math.MaxInt64), math.MaxInt, int64(math.MaxInt64), math.MaxInt, uint8(255), int64(math.MaxInt64), int64(math.MinInt64), int64(0))
	for bit := range 16 {
		f.Add(int64(20*time.Millisecond), uint16(1)<<bit, int64(30*time.Millisecond), int64(40*time.Millisecond), 1, int64(50*time.Millisecond), 2, uint8(3), int64(0), int64(0), int64(35*time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, interval int64, flags uint16, jitter, timeout int64, failures int, backoffCap int64, bound int, maxRuns uint8, startAt, endAt, lasts int64) {
		on := func(bit int) bool { return flags>>bit&1 == 1 }
		m, clk := tasktest.New(t, taskmanager.WithMaxConcurrentRuns(int(flags>>14)), taskmanager.WithLogger(silent))
		begun := clk.Now()
		var opts []taskmanager.TaskOption
		add := func(bit int, o taskmanager.TaskOption) {
			if on(bit) {
				opts = append(opts, o)
			}
		}
		add(0, taskmanager.WithJitter(time.Duration(jitter)))
		add(1, taskmanager.WithExecutionTimeout(time.Duration(timeout)))
		add(2, taskmanager.WithFailuresBeforeBackoff(failures))
		add(3, taskmanager.WithBackoffCap(time.Duration(backoffCap)))
		add(4, taskmanager.WithOverlap(taskmanager.CatchUp(bound)))
		add(5, taskmanager.WithOverlap(taskmanager.Coalesce))
		add(6, taskmanager.WithNonReentrant(false))
		add(7, taskmanager.WithMaxRuns(uint64(maxRuns)))
		add(8, taskmanager.WithStartAt(begun.Add(time.Duration(startAt))))
		add(9, taskmanager.WithEndAt(begun.Add(time.Duration(endAt))))
		add(10, taskmanager.WithFixedDelay())
		add(11, taskmanager.WithImmediately())
		add(12, taskmanager.WithBackoff(func() backoff.BackOff { return backoff.NewConstantBackOff(time.Duration(backoffCap)) }))
		add(13, taskmanager.WithSkipOverLimit())
		n := 0
		fn := func(ctx context.Context) error {
			n++
			err := clk.Sleep(ctx, time.Duration(lasts%int64(time.Minute)))
			if err == nil && n%3 == 0 {
				err = errBoom
			}
			return err
		}
		if on(6) {
			fn = func(ctx context.Context) error { return clk.Sleep(ctx, time.Duration(lasts%int64(time.Minute))) }
		}
		h, err := m.ScheduleRecurring("a", time.Duration(interval), fn, opts...)
		if err != nil {
			if !errors.As(err, new(*taskmanager.OptionError)) {
				t.Errorf("refused with %v, which is no OptionError", err)
			}
			if _, ok := m.Lookup("a"); ok || h != nil {
				t.Error("refused, and scheduled all the same")
			}
			return
		}
		// 200 intervals, in uneven steps.
		step := max(1, min(interval, math.MaxInt64/1000))
		var age int64
		for i := range int64(10) {
			d := step * (2*i + 11) / 1
			if on(15) && i%3 == 0 {
				clk.Stall(time.Duration(d))
			} else {
				clk.Advance(time.Duration(d))
			}
			age += d
			checkRuns(t, h)
		}
		s, o := h.Snapshot(), h.Options()
		if s.Err != nil || o.MaxRuns > 0 || o.Jitter > 0 || o.FixedDelay || on(8) || on(9) {
			return // what is due depends on the run, or the dice
		}
		want := uint64(age / interval)
		if o.Immediately {
			want++
		}
		if s.Ticks.Due() != want {
			t.Errorf("the ledger has %d ticks, the grid %d: %+v", s.Ticks.Due(), want, s.Ticks)
		}
	})
}

func TestAManagersDefaultsForIntervalsAreNoWishOfASchedule(t *testing.T) {
	type opts = []taskmanager.TaskOption
	delay := delaySchedule{time.Second, 0}
	coalesce, overlapping := taskmanager.WithOverlap(taskmanager.Coalesce), taskmanager.WithNonReentrant(false)
	for name, test := range map[string]struct {
		defaults opts
		schedule taskmanager.Schedule
		own      opts
		refused  []string
	}{
		"fixed delay, its own overlap":         {opts{taskmanager.WithFixedDelay()}, noon, opts{coalesce}, nil},
		"fixed delay, runs that overlap":       {opts{taskmanager.WithFixedDelay()}, noon, opts{overlapping}, nil},
		"overlap, a delay's":                   {opts{coalesce}, delay, nil, nil},
		"runs that overlap, a delay's":         {opts{overlapping}, delay, nil, nil},
		"immediately and its own":              {opts{taskmanager.WithImmediately()}, noon, opts{taskmanager.WithImmediately()}, []string{"Immediately"}},
		"fixed delay and its own":              {opts{taskmanager.WithFixedDelay()}, noon, opts{taskmanager.WithFixedDelay()}, []string{"FixedDelay"}},
		"overlap and a delay's own":            {opts{coalesce}, delay, opts{coalesce}, []string{"Overlap"}},
		"runs that overlap, and a delay's own": {opts{overlapping}, delay, opts{overlapping}, []string{"NonReentrant"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := tasktest.New(t, taskmanager.WithDefaultTaskOptions(test.defaults...))
			if _, err := m.Schedule("a", test.schedule, nothing, test.own...); !slices.Equal(refused(err), test.refused) {
				t.Errorf("Schedule = %v, want %q refused", err, test.refused)
			}
		})
	}
}
