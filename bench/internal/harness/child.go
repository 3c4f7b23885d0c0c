package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// ChildFlag, as the first argument, makes the binary a child: it measures one
// entry and prints an Outcome. The rest is the entry's ID and the mode.
const ChildFlag = "-child"

// Child is the main function of a child process.
func Child(all []row.Workload, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("bench: %s wants an ID and a mode", ChildFlag)
	}
	mode, err := row.ParseMode(args[1])
	if err != nil {
		return err
	}
	_, e, err := row.Find(all, args[0])
	if err != nil {
		return err
	}
	o, err := e.Measure(mode)
	if err != nil {
		return err
	}
	for metric, v := range o.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) { // JSON has no such numbers
			delete(o.Values, metric)
		}
	}
	return json.NewEncoder(out).Encode(o)
}

// limit is the time after which a child is killed. It is far beyond the
// estimate: a busy machine is to give bad figures, not none.
func limit(e *row.Entry, mode row.Mode) time.Duration {
	return 2*e.Takes(mode) + 45*time.Second
}

// run measures one step in a child process.
func (s Step) run(ctx context.Context, exe string, mode row.Mode) result.Run {
	r := result.Run{Workload: s.Workload.Name, Contender: s.Entry.Contender, Rep: s.Rep}
	max := limit(s.Entry, mode)
	bounded, cancel := context.WithTimeout(ctx, max)
	defer cancel()

	var out, errs bytes.Buffer
	cmd := exec.CommandContext(bounded, exe, ChildFlag, s.Workload.ID(s.Entry), mode.String())
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error { // so that it can tidy up
		if cmd.Process.Signal(os.Interrupt) != nil {
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = os.Environ()

	watch, start := host.StartWatch(), time.Now()
	err := cmd.Run()
	r.Wall = time.Since(start).Seconds()
	if p := cmd.ProcessState; p != nil {
		r.Noise = watch.Stop(p.UserTime() + p.SystemTime())
	}
	switch {
	case ctx.Err() != nil:
		r.Error = "interrupted"
	case errors.Is(bounded.Err(), context.DeadlineExceeded):
		r.Error = fmt.Sprintf("did not finish in %v", max.Round(time.Second))
	case err != nil:
		r.Error = lastLine(errs.String(), err)
	default:
		if err := json.Unmarshal(out.Bytes(), &r.Outcome); err != nil {
			r.Error = fmt.Sprintf("unreadable result: %v", err)
		}
		if said := strings.TrimSpace(errs.String()); said != "" {
			r.Notef("complained: %s", shorten(said))
		}
	}
	return r
}

// shorten keeps what a note can show of a log: the beginning of its first line.
func shorten(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	const most = 160
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// lastLine is what a child had to say in the end, or how it ended.
func lastLine(stderr string, err error) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for _, l := range lines { // a crash says why first, and where last
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") {
			return l
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return err.Error()
}
