package engine

import (
	"testing"
	"time"
)

func TestExpectedCountsTheInstantsOfEveryJob(t *testing.T) {
	base := time.Now()
	j := newJobs(200, 70*time.Millisecond, 70*time.Millisecond, base)
	j.slow = true
	from, to := base.Add(31*time.Millisecond), base.Add(1031*time.Millisecond)
	var want int64
	for i := range j.n {
		if i%slowEvery == slowAt {
			continue
		}
		for at := base.Add(j.phase(i)); !at.After(to); at = at.Add(j.interval) {
			if at.After(from) {
				want++
			}
		}
	}
	if got := j.expected(from, to); got != want {
		t.Errorf("expected = %d, want %d", got, want)
	}
}

func TestPhasesFillTheSpreadAndAreTheSameEachTime(t *testing.T) {
	j := newJobs(1000, time.Second, time.Second, time.Now())
	var quarters [4]int
	for i := range j.n {
		quarters[j.phase(i)/(time.Second/4)]++
	}
	for q, n := range quarters {
		if n < 200 || n > 300 {
			t.Errorf("quarter %d has %d of 1000 phases, want about 250", q, n)
		}
	}
	if a, b := j.phase(3), newJobs(10, time.Second, time.Second, time.Now()).phase(3); a != b {
		t.Errorf("phase(3) = %v and %v, want the same", a, b)
	}
}

func TestLatenessIsTakenFromTheJobsOwnGrid(t *testing.T) {
	for _, c := range []struct {
		name        string
		after, late time.Duration
		early       int64
	}{
		{"on its instant", 0, 0, 0},
		{"a minute late", time.Minute, time.Minute, 0},
		{"two instants later, and a minute", 2*time.Hour + time.Minute, time.Minute, 0},
		{"a millisecond early", -time.Millisecond, 0, 1},
		{"a millisecond early for the second", time.Hour - time.Millisecond, 0, 1},
		{"almost an interval late", time.Hour - earlyBound, time.Hour - earlyBound, 0},
	} {
		j := newJobs(1, time.Hour, 0, time.Now())
		j.recorders[0].started(c.after)
		if got := time.Duration(j.late.Begin().Max); got != c.late {
			t.Errorf("%s: lateness = %v, want %v", c.name, got, c.late)
		}
		if got := j.early.Load(); got != c.early {
			t.Errorf("%s: early = %d, want %d", c.name, got, c.early)
		}
	}
	j := newJobs(1, time.Hour, 0, time.Now())
	grid := j.base.Add(time.Minute)
	if j.at(0).Rebase(grid); j.recorders[0].grid != grid {
		t.Errorf("after Rebase(%v) the grid is at %v", grid, j.recorders[0].grid)
	}
}

func TestSlowJobsNeverRecord(t *testing.T) {
	for i := slowAt; i < 100_000; i += slowEvery {
		if i%recordEvery == 0 {
			t.Fatalf("job %d is slow and records", i)
		}
	}
}
