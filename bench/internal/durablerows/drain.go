package durablerows

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// A backlog is a contender with its jobs enqueued.
type backlog struct {
	start func(context.Context) error // has the work begin
	// handled is how many jobs were handled, as this process knows.
	handled func() int64
	// done is how many of them are recorded, as the database says.
	done func(context.Context) (int64, error)
	stop func() error
	// figures adds what else there is to tell; may be nil.
	figures func(*row.Outcome)
	server  string // how the server's processes are called, "" without one
	whole   bool   // it has no end: the limit is when to look
}

// A drain measures how fast a backlog is worked off: until it is, or for limit.
type drain struct {
	jobs  int
	limit time.Duration
}

// look is how often it is looked whether the backlog is gone, once all are handled.
const look = 5 * time.Millisecond

// profileEnv names a folder for processor profiles of the measured time.
const profileEnv = "TASKMANAGER_BENCH_PROFILE"

func (d drain) measure(ctx context.Context, name string, b *backlog) (o row.Outcome, err error) {
	runtime.GC()
	finish, err := profile(name)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	cpu, server, start := host.CPU(), host.ProcessCPU(b.server), time.Now()
	if err := b.start(ctx); err != nil {
		return o, err
	}
	for b.handled() < int64(d.jobs) && time.Since(start) < d.limit && ctx.Err() == nil {
		time.Sleep(look)
	}
	// The time is that before the question, of which the database answers what was so
	// when it got it.
	var n int64
	var took, used, served time.Duration
	for {
		took, used, served = time.Since(start), host.CPU()-cpu, host.ProcessCPU(b.server)-server
		if n, err = b.done(ctx); err != nil {
			return o, err
		}
		if n >= int64(d.jobs) && !b.whole || took >= d.limit {
			break
		}
		time.Sleep(look)
	}
	finish()
	if n == 0 {
		return o, errors.New("bench: no job was done")
	}
	o.Values = row.Values{
		row.JobsPerS:  float64(n) / took.Seconds(),
		row.CPUPerJob: float64(used.Microseconds()) / float64(n),
		row.PerCPUS:   float64(n) / used.Seconds(),
		row.PerCore:   float64(n) / took.Seconds() / float64(runtime.NumCPU()),
	}
	if served > 0 {
		o.Values[row.ServerPerJob] = float64(served.Microseconds()) / float64(n)
	}
	if b.figures != nil {
		b.figures(&o)
	}
	return o, nil
}

func profile(name string) (finish func(), err error) {
	dir := os.Getenv(profileEnv)
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}
