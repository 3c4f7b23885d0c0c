package taskmanager

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// upcomingCount is how many instants Explain foretells.
const upcomingCount = 5

// Explain says in words, for people, why the task is not running now, what it
// waits for, and when its next five ticks are due, as far as that is known: it
// presumes that runs succeed and end in time. The wording is no part of the API.
//
// It holds the engine for a moment, in proportion to the length of the queue the task
// waits in. A task's Schedule is asked on the calling goroutine, up to
// five times, and an error of the task for its text; if they panic, the text says
// so. Safe for concurrent use, from inside runs and after the task's end too.
func (t *Handle) Explain() string {
	p := t.posture()
	p.snap.Schedule = rhythm{p.seat, p.interval, p.single}.text()
	var b strings.Builder
	fmt.Fprintf(&b, "task %q, %s: %s\n", p.snap.Name, oneLine(p.snap.Schedule, 200), stateCell(&p.snap, p.now.wall))
	for _, sentence := range p.sentences() {
		b.WriteString(sentence)
		b.WriteByte('\n')
	}
	list, then := p.upcoming()
	if len(list) > 0 {
		b.WriteString("next instants:\n")
	}
	for _, in := range list {
		fmt.Fprintf(&b, "  %s, %s%s\n", instantText(in.when), relative(in.when.Sub(p.now.wall)), in.note)
	}
	if then != "" {
		b.WriteString(then)
		b.WriteByte('\n')
	}
	return b.String()
}

// A posture is what Explain has to know of a task, taken under its locks so that
// the words can be found, and user code called, without them.
type posture struct {
	now  hands
	snap Snapshot // without its schedule's text

	life     life
	seat     *seat // only what is immutable in it is read
	interval int64
	single   bool
	busy     bool
	paused   bool
	floor    int64 // 0: no backoff, or over
	held     uint64
	endAt    int64
	overlap  OverlapPolicy
	reenters bool
	limit    time.Duration
	maxRuns  uint64
	left     uint64 // starts that MaxRuns leaves
	free     uint64 // those that no held tick takes
	first    int64  // of a single task: the instant of the next tick, never if unknown
	begins   int64  // of a delayed task

	seated time.Time // seat.at with shift
	served time.Time // seat.served
	asking bool
	ended  bool

	waits  []waitingRun
	oldest *run // a copy, of the run that has gone on longest
	grid   []gridTick
	ends   bool // the grid ends behind them
}

// A waitingRun is a queued run.
type waitingRun struct {
	index int64
	due   int64
	limit string // the limit it waits at; "" if it is about to start
	ahead int    // runs before it in that queue
}

// A gridTick is a start that is to come.
type gridTick struct {
	index int64
	when  int64
	held  bool // by backoff
}

// posture takes the picture. It calls no user code.
func (t *task) posture() *posture {
	e := t.conf.m.engine
	p := &posture{now: e.hands()}
	now := p.now.mono
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	p.snap = t.snapshotLocked(p.now)

	opts := &t.conf.opts
	p.life, p.paused, p.busy = t.life, t.paused, t.busy()
	p.interval, p.single, p.first, p.begins = t.interval, t.single, t.nextDue(), t.begins()
	p.overlap, p.reenters, p.limit = opts.Overlap, !opts.NonReentrant, opts.ExecutionTimeout
	p.maxRuns, p.left, p.endAt = t.runLimit(), t.runsLeft(), t.end()
	if t.floor() > now {
		p.floor = t.floor()
	}
	p.held = uint64(t.heldCount())
	if p.free = p.left; p.floor == 0 { // else the one that backoff holds is listed
		p.free -= min(p.left, t.runsHeld(int64(p.held)))
	}
	if s := t.seatOf(); s != nil {
		p.seat, p.asking, p.ended, p.served = s, s.asking, s.ended, s.served
		if !s.at.IsZero() {
			p.seated = s.at.Add(s.shift)
		}
	}
	t.eachRun(func(r *run) {
		switch {
		case r.stage == queued:
			p.waits = append(p.waits, t.waitingRun(r))
		case p.oldest == nil || r.started < p.oldest.started:
			p.oldest = &run{index: r.index, started: r.started, stopped: r.stopped}
		}
	})
	if !t.single {
		p.grid, p.ends = t.gridAhead(now)
	}
	return p
}

// runsLeft is the number of starts that MaxRuns leaves, those queued taken off.
func (t *task) runsLeft() uint64 {
	limit := t.runLimit()
	if limit == 0 {
		return math.MaxUint64
	}
	return limit - min(t.committed(), limit)
}

// waitingRun describes a queued run. Called with engine.mu held too.
func (t *task) waitingRun(r *run) waitingRun {
	w := waitingRun{index: r.index, due: r.due}
	if t.extra == nil || t.extra.turn == nil || t.extra.turn.run != r {
		return w
	}
	g := t.extra.turn.gate
	for i := range g.waiting {
		if i != t.extra.turn.at && g.waiting.Less(i, t.extra.turn.at) {
			w.ahead++
		}
	}
	w.limit = "the manager's limit of concurrent runs"
	if g != t.conf.m.allGate {
		w.limit = fmt.Sprintf("the limit of concurrent runs of tag %q", t.conf.opts.Tag)
	}
	return w
}

// runsHeld are the runs that n held ticks become.
func (t *task) runsHeld(n int64) uint64 {
	if o := t.conf.opts.Overlap; o.kind == overlapCatchUp {
		return uint64(min(n, int64(o.bound)))
	}
	return uint64(min(n, 1))
}

// gridAhead computes the next starts of an interval task, and tells whether the grid ends
// behind them. Of ticks that are held, the first start is listed if its instant is known.
func (t *task) gridAhead(now int64) (list []gridTick, ends bool) {
	n := t.runsLeft()
	if t.life != live || n == 0 {
		return nil, false
	}
	k := t.next
	if floor := t.floor(); floor > now {
		last := max(t.latest(floor), k-1)
		if last >= k || t.holding() {
			list = append(list, gridTick{last, floor, true}) // the latest; the others are skipped
		}
		k = last + 1
	} else if t.holding() {
		n -= min(n, t.runsHeld(t.heldCount()))
	}
	for n = min(n, upcomingCount); uint64(len(list)) < n; k++ {
		when := t.at(k)
		if when > t.end() || when >= never-1 {
			return list, true
		}
		list = append(list, gridTick{k, when, false})
	}
	return list, false
}

// delayed tells whether the next tick counts from the end of the run before.
func (p *posture) delayed() bool { return p.single && (p.seat == nil || p.seat.delay) }

// instant says when something is, or was, on the monotonic hand.
func (p *posture) instant(mono int64) string {
	return instantText(p.now.at(mono)) + " (" + relative(time.Duration(mono-p.now.mono)) + ")"
}

// sentences say why the task is not running.
func (p *posture) sentences() (list []string) {
	say := func(form string, args ...any) { list = append(list, fmt.Sprintf(form, args...)) }
	if p.oldest != nil {
		list = append(list, p.whileRunning()...)
	}
	for _, w := range p.waits {
		say("%s", p.whileWaiting(w))
	}
	switch {
	case p.life == stopped:
		say("%s", p.whyStopped())
	case p.life == complete:
		say("it is complete: %s", p.whyComplete())
	case p.paused:
		say("it is paused: no tick runs until Resume")
	case p.floor > 0:
		list = append(list, p.whileBackingOff()...)
	case p.busy || p.seat != nil:
	case p.first != never:
		say("it waits for its next tick")
	default:
		say("it has no next tick")
	}
	if p.life != live {
		return list
	}
	if p.seat != nil && (p.asking || p.ended || p.seat.manual || !p.busy && !p.paused && p.floor == 0) {
		say("%s", p.whySeated())
	}
	if p.maxRuns > 0 {
		say("of its %s, %d left", count(p.maxRuns, "run"), p.left)
	}
	return list
}

func (p *posture) whileRunning() (list []string) {
	r, now := p.oldest, p.now.mono
	serves := fmt.Sprintf("for tick %d", r.index)
	if r.index < 0 {
		serves = "by RunNow"
	}
	text := fmt.Sprintf("it is running %s, since %s", serves, p.instant(r.started))
	if p.snap.InFlight > 1 {
		text = fmt.Sprintf("%d runs are in flight; the oldest, %s, goes on since %s", p.snap.InFlight, serves, p.instant(r.started))
	}
	list = append(list, text)
	if over := now - r.started - int64(p.limit); p.limit > 0 && over >= 0 {
		list = append(list, fmt.Sprintf("its time limit of %v passed %s, its context is cancelled, and the function has not returned", p.limit, relative(-time.Duration(over))))
	} else if r.stopped {
		list = append(list, "its context is cancelled, and the function has not returned")
	}
	if p.life != live || p.paused || p.ended || p.delayed() {
		return list // no tick can come, or none that counts
	}
	switch {
	case p.held > 0 && p.floor == 0:
		list = append(list, fmt.Sprintf("%s held until it ends (%v)", are(p.held, "tick"), p.overlap))
	case !p.reenters:
		list = append(list, map[overlapKind]string{
			overlapSkip:     "ticks that come before it ends are skipped",
			overlapCoalesce: "ticks that come before it ends become one run then",
			overlapCatchUp:  fmt.Sprintf("ticks that come before it ends are held for then (%v)", p.overlap),
		}[p.overlap.kind])
	}
	return list
}

func (p *posture) whileWaiting(w waitingRun) string {
	what := fmt.Sprintf("its run for tick %d, due %s,", w.index, p.instant(w.due))
	if w.index < 0 {
		what = fmt.Sprintf("its run by RunNow, called %s,", p.instant(w.due))
	}
	switch {
	case w.limit != "" && w.ahead == 0:
		return fmt.Sprintf("%s waits its turn at %s: it is the next", what, w.limit)
	case w.limit != "":
		return fmt.Sprintf("%s waits its turn at %s, behind %s", what, w.limit, count(uint64(w.ahead), "other"))
	}
	return what + " is about to start"
}

func (p *posture) whileBackingOff() []string {
	text := "it backs off until " + p.instant(p.floor)
	if n := p.snap.ConsecutiveFailures; n > 0 {
		text = fmt.Sprintf("it backs off after %s, until %s", count(uint64(n), "failure", "failures in a row"), p.instant(p.floor))
	}
	list := []string{text}
	if p.snap.LastError != nil {
		list = append(list, "the last error: "+oneLine(errorText(p.snap.LastError), 200))
	}
	return list
}

// whySeated says what becomes of a task with a Schedule.
func (p *posture) whySeated() string {
	switch {
	case p.asking:
		return "its schedule is being asked for its next instant"
	case p.seat.manual:
		return "its schedule has no instants of its own: it waits for RunNow"
	case p.ended:
		return "its schedule has no further instant" + p.reason()
	}
	return "it waits for the next instant of its schedule"
}

func (p *posture) whyStopped() string {
	switch err := p.snap.Err; err {
	case ErrStopped:
		return "it was stopped by Stop or StopTag"
	case ErrClosed:
		return "it was stopped since the manager was shut down"
	default:
		if s, ok := err.(*stopError); ok {
			err = s.reason
		}
		return "it was stopped: " + oneLine(guardedText(err), 200)
	}
}

func (p *posture) whyComplete() string {
	switch {
	case p.maxRuns > 0 && p.left == 0:
		return fmt.Sprintf("it has had its %s", count(p.maxRuns, "run"))
	case p.seat != nil && p.ended:
		return "its schedule has no further instant" + p.reason()
	}
	return "no tick is left before its end, " + p.instant(p.endAt)
}

// reason is the schedule's own words for having no further instant.
func (p *posture) reason() (text string) {
	s, ok := p.seat.schedule.(interface{ Reason(after time.Time) string })
	if !ok {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = " (asked for the reason, it panicked)"
		}
	}()
	if text = s.Reason(p.now.wall); text != "" {
		text = ": " + oneLine(text, 200)
	}
	return text
}

// An instant is a line of Explain's list.
type instant struct {
	when time.Time
	note string
}

// upcoming lists the next starts, and says what follows them if that is not more
// of the same.
func (p *posture) upcoming() (list []instant, then string) {
	switch {
	case p.life != live || p.left == 0:
	case p.seat != nil && (p.asking || p.ended || p.seat.manual):
	case p.delayed():
		list, then = p.delayedAhead()
	case p.seat != nil:
		list, then = p.seatedAhead()
	default:
		list, then = p.gridInstants()
	}
	if p.paused && len(list) > 0 {
		then = strings.TrimSpace("(they are skipped while it is paused)\n" + then)
	}
	return list, then
}

func (p *posture) gridInstants() (list []instant, then string) {
	for _, g := range p.grid {
		note := fmt.Sprintf(", tick %d", g.index)
		if g.held {
			note += ", held by backoff"
		}
		list = append(list, instant{p.now.at(g.when), note})
	}
	if p.ends && p.endAt != never {
		then = "no tick is due after " + instantText(p.now.at(p.endAt))
	}
	return list, then
}

// delayedAhead is upcoming for a fixed delay, of which only one start is known.
func (p *posture) delayedAhead() (list []instant, then string) {
	after := "the next start is " + time.Duration(p.interval).String() + " after "
	if p.seat != nil {
		after = "the next start counts from "
	}
	switch {
	case p.busy && p.paused:
		return nil, after + "the end of this run or Resume, whichever is later"
	case p.busy && p.now.mono >= p.begins:
		return nil, after + "the end of this run"
	case p.paused && (p.first == never || p.first <= p.now.mono):
		return nil, after + "Resume"
	}
	first := max(p.first, p.floor)
	if p.held > 0 { // its tick fell due in the backoff
		first = p.floor
	}
	if first == never {
		return nil, ""
	}
	if p.left > 1 {
		then = "each later one counts from the end of the run before it"
	}
	return []instant{{p.now.at(first), ""}}, then
}

// seatedAhead is upcoming for a schedule on the wall clock: it asks it.
func (p *posture) seatedAhead() (list []instant, then string) {
	n := int(min(p.free, upcomingCount))
	shift := p.seat.shift
	end := p.now.at(p.endAt)
	from := p.now.wall // what comes after it is next
	known := p.seated
	switch floor := p.now.at(p.floor); {
	case p.floor > 0 && (p.held > 0 || !known.IsZero() && !known.After(floor)):
		list = append(list, instant{floor, ", held by backoff"})
		from, known = floor, time.Time{}
	case known.After(p.now.wall):
	default: // taken already, by a pause, or by a run that is about to start
		known = time.Time{}
	}
	for len(list) < n {
		if known.IsZero() {
			next, ok, err := p.seat.ask(p.seat.askAfter(from, p.served))
			switch {
			case err != nil:
				return list, "asked for more, " + oneLine(guardedText(err), 200)
			case !ok:
				return list, "the schedule has no further instant"
			}
			known = next.Add(shift)
		}
		if !end.IsZero() && known.After(end) {
			return list, "no tick is due after " + instantText(end)
		}
		list = append(list, instant{known.Round(0), ""})
		from, known = known, time.Time{}
	}
	return list, ""
}

// count is a number of things: the plural is given, or has an s.
func count(n uint64, one string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(plural) > 0:
		return fmt.Sprintf("%d %s", n, plural[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func are(n uint64, one string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %ss are", n, one)
}
