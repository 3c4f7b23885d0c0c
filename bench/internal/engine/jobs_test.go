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
	now := time.Now()
	j := newJobs(1, time.Hour, 0, now.Add(-2*time.Hour-time.Minute))
	r := &j.recorders[0]
	r.record()
	if got := time.Duration(j.late.Begin().Max); got < time.Minute || got > time.Minute+time.Second {
		t.Errorf("lateness = %v, want a minute: two instants have passed since the first", got)
	}
	j.at(0).Rebase(now.Add(time.Millisecond))
	r.record()
	if got := j.early.Load(); got != 1 {
		t.Errorf("early = %d, want 1: the start came a millisecond before its instant", got)
	}
}

func TestSlowJobsNeverRecord(t *testing.T) {
	for i := slowAt; i < 100_000; i += slowEvery {
		if i%recordEvery == 0 {
			t.Fatalf("job %d is slow and records", i)
		}
	}
}
