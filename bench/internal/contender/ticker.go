package contender

import "time"

// ticker is the usual way: a goroutine with a time.Ticker for each task.
//
// A Ticker's grid starts where the Ticker does and cannot be placed. So each
// one waits for its first instant with a first tick of another length, is
// reset there, and reports where its grid has come to lie. Where all tasks
// are due at once that would spread them over the time the first tick takes,
// and the work would no longer be the same: there the Ticker is reset after
// every tick to the absolute next instant, which costs a Reset each.
var ticker = Contender{
	Name: "ticker", Title: "goroutine + time.Ticker", AddCost: 8 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		return &tickers{done: make([]chan struct{}, s.Jobs), setup: s}, nil
	},
}

type tickers struct {
	done  []chan struct{}
	setup Setup
}

func (t *tickers) Add(j Job) error {
	j.Run = limited(j.Run, t.setup.Timeout)
	done := make(chan struct{})
	t.done[j.Index] = done
	if t.setup.Aligned {
		go tickAligned(j.First, j.Interval, j.Run, done)
	} else {
		go tick(j.First, j.Interval, j.Run, j.Rebase, done)
	}
	return nil
}

func tick(first time.Time, interval time.Duration, run func(), rebase func(time.Time), done chan struct{}) {
	now := time.Now()
	first = grid{first, interval}.after(now)
	tk := time.NewTicker(first.Sub(now))
	defer tk.Stop()
	select {
	case <-tk.C:
	case <-done:
		return
	}
	run() // its lateness still counts from the grid that was asked for
	if rebase != nil {
		rebase(time.Now())
	}
	tk.Reset(interval)
	for {
		select {
		case <-tk.C:
			run()
		case <-done:
			return
		}
	}
}

func tickAligned(first time.Time, interval time.Duration, run func(), done chan struct{}) {
	g := grid{first, interval}
	now := time.Now()
	tk := time.NewTicker(g.after(now).Sub(now))
	defer tk.Stop()
	for {
		select {
		case <-tk.C:
			run()
			now = time.Now()
			tk.Reset(g.after(now).Sub(now))
		case <-done:
			return
		}
	}
}

func (t *tickers) Start() {}

func (t *tickers) Stop(i int) error {
	close(t.done[i])
	t.done[i] = nil
	return nil
}

func (t *tickers) Close() {
	for i, d := range t.done {
		if d != nil {
			_ = t.Stop(i)
		}
	}
}
