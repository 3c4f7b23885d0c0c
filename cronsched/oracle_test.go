package cronsched_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// The oracle knows nothing of bit sets, ranges of offsets or jumps. It makes a
// random expression together with plain tables and predicates of what matches,
// asks the time package what the wall clock shows at each second, and says
// which seconds fire.

var oracleZones = []string{
	"UTC", "America/New_York", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon",
	"Australia/Lord_Howe", "Australia/Adelaide", "America/Havana", "Asia/Beirut", "America/Santiago",
	"Pacific/Apia", "Pacific/Kwajalein", "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia",
	"Asia/Gaza", "Asia/Tehran", "Asia/Kathmandu", "Asia/Pyongyang", "America/St_Johns", "America/Caracas",
	"America/Sao_Paulo", "America/Argentina/Tucuman", "Antarctica/Troll", "Antarctica/Casey",
	"Antarctica/Vostok", "America/Scoresbysund", "America/Godthab", "Pacific/Chatham", "Asia/Kolkata",
	"Pacific/Kiritimati", "Africa/El_Aaiun",
}

// rounds gives how often a random test draws: n times, or as many times more
// as the environment variable CRON_ROUNDS says, with other draws then.
func rounds(t testing.TB, n int) int {
	t.Helper()
	if more := os.Getenv("CRON_ROUNDS"); more != "" {
		k, err := strconv.Atoi(more)
		if err != nil {
			t.Fatalf("CRON_ROUNDS: %v", err)
		}
		n *= k
	}
	return n
}

// random gives the source of a random test, the same in each run unless
// CRON_ROUNDS is set.
func random(seed uint64) *rand.Rand {
	if os.Getenv("CRON_ROUNDS") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	return rand.New(rand.NewPCG(seed, seed))
}

// A model is a random expression that the oracle can judge.
type model struct {
	text                 string
	second, minute, hour [60]bool
	month                [13]bool
	year                 func(y int) bool
	dom, dow             func(d time.Time) bool // nil: exactly * or ?
	lastDay              time.Time              // the day that matchesDay was last asked
	lastAnswer           bool
}

func (m *model) matchesDay(year int, month time.Month, day int) bool {
	d := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	if !d.Equal(m.lastDay) {
		m.lastDay, m.lastAnswer = d, m.judgeDay(d)
	}
	return m.lastAnswer
}

func (m *model) judgeDay(d time.Time) bool {
	if d.Year() < 1970 || d.Year() > 2099 || !m.year(d.Year()) || !m.month[d.Month()] {
		return false
	}
	switch {
	case m.dom == nil && m.dow == nil:
		return true
	case m.dom == nil:
		return m.dow(d)
	case m.dow == nil:
		return m.dom(d)
	}
	return m.dom(d) || m.dow(d)
}

// matches judges what the wall clock shows, given as if it were UTC.
func (m *model) matches(wall time.Time) bool {
	return m.second[wall.Second()] && m.minute[wall.Minute()] && m.hour[wall.Hour()] &&
		m.matchesDay(wall.Date())
}

// randomModel makes an expression. A dense one fires often, so that a few days
// hold many instants.
func randomModel(r *rand.Rand, dense bool) *model {
	m := &model{year: func(int) bool { return true }}
	var second, minute, hour, month, year string
	second, m.second = randomValues(r, 0, 59, r.IntN(3) > 0, "")
	minute, m.minute = randomValues(r, 0, 59, r.IntN(3) > 0, "")
	hour, m.hour = randomValues(r, 0, 23, dense && r.IntN(2) > 0, "")
	var months [60]bool
	month, months = randomValues(r, 1, 12, dense || r.IntN(2) > 0, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC")
	copy(m.month[:], months[:])
	dom, dow := "*", "*"
	if !dense || r.IntN(4) == 0 {
		if r.IntN(3) > 0 {
			dom, m.dom = randomDays(r, randomDom)
		}
		if r.IntN(3) > 0 {
			dow, m.dow = randomDays(r, randomDow)
		}
	}
	parts := []string{second, minute, hour, dom, month, dow}
	switch r.IntN(4) {
	case 0:
		from, step := 1970+r.IntN(130), 1+r.IntN(9)
		year = fmt.Sprintf("%d/%d", from, step)
		m.year = func(y int) bool { return y >= from && (y-from)%step == 0 }
		parts = append(parts, year)
	case 1:
		m.second = [60]bool{0: true}
		parts = parts[1:]
	}
	m.text = strings.Join(parts, " ")
	return m
}

// randomValues makes a numeric field, and the table of what it matches.
func randomValues(r *rand.Rand, low, high int, any bool, names string) (string, [60]bool) {
	var set [60]bool
	fill := func(a, b, step int) {
		for v := a; v <= b; v += step {
			set[v] = true
		}
	}
	if any {
		fill(low, high, 1)
		return "*", set
	}
	write := func(v int) string {
		if names != "" && r.IntN(2) == 0 {
			return names[3*(v-low) : 3*(v-low)+3]
		}
		return strconv.Itoa(v)
	}
	var items []string
	for range 1 + r.IntN(3) {
		a := low + r.IntN(high-low+1)
		b := a + r.IntN(high-a+1)
		step := 1 + r.IntN(high)
		switch r.IntN(5) {
		case 0:
			fill(low, high, step)
			items = append(items, fmt.Sprintf("*/%d", step))
		case 1:
			fill(a, high, step)
			items = append(items, fmt.Sprintf("%s/%d", write(a), step))
		case 2:
			fill(a, b, step)
			items = append(items, fmt.Sprintf("%s-%s/%d", write(a), write(b), step))
		case 3:
			fill(a, b, 1)
			items = append(items, write(a)+"-"+write(b))
		default:
			fill(a, a, 1)
			items = append(items, write(a))
		}
	}
	return strings.Join(items, ","), set
}

type dayItem = func(r *rand.Rand) (string, func(d time.Time) bool)

// randomDays makes a list of day items, and the predicate of their union.
func randomDays(r *rand.Rand, item dayItem) (string, func(d time.Time) bool) {
	var texts []string
	var preds []func(d time.Time) bool
	for range 1 + r.IntN(2) {
		text, pred := item(r)
		texts, preds = append(texts, text), append(preds, pred)
	}
	return strings.Join(texts, ","), func(d time.Time) bool {
		return slices.ContainsFunc(preds, func(p func(time.Time) bool) bool { return p(d) })
	}
}

func lastOfMonth(d time.Time) time.Time {
	return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC)
}

// isNearestWorkday says whether d is the Monday-Friday nearest to the n-th of
// its month, by trying the days in the order of their distance.
func isNearestWorkday(d time.Time, n int) bool {
	if n > lastOfMonth(d).Day() {
		return false
	}
	for _, shift := range []int{0, -1, 1, -2, 2} {
		c := time.Date(d.Year(), d.Month(), n+shift, 0, 0, 0, 0, time.UTC)
		if c.Month() == d.Month() && c.Weekday() != time.Saturday && c.Weekday() != time.Sunday {
			return c.Equal(d)
		}
	}
	return false
}

func randomDom(r *rand.Rand) (string, func(d time.Time) bool) {
	n := 1 + r.IntN(31)
	switch r.IntN(6) {
	case 0:
		return "L", func(d time.Time) bool { return d.Equal(lastOfMonth(d)) }
	case 1:
		n = min(n, 30)
		return fmt.Sprintf("L-%d", n), func(d time.Time) bool { return lastOfMonth(d).Day()-d.Day() == n }
	case 2:
		return fmt.Sprintf("%dW", n), func(d time.Time) bool { return isNearestWorkday(d, n) }
	case 3:
		return "LW", func(d time.Time) bool { return isNearestWorkday(d, lastOfMonth(d).Day()) }
	}
	text, set := randomValues(r, 1, 31, false, "")
	return text, func(d time.Time) bool { return set[d.Day()] }
}

func randomDow(r *rand.Rand) (string, func(d time.Time) bool) {
	w := time.Weekday(r.IntN(7))
	name := strings.ToUpper(w.String()[:3])
	if r.IntN(2) == 0 {
		name = strconv.Itoa(int(w))
	}
	switch r.IntN(4) {
	case 0:
		return name + "L", func(d time.Time) bool { return d.Weekday() == w && lastOfMonth(d).Day()-d.Day() < 7 }
	case 1:
		k := 1 + r.IntN(5)
		return fmt.Sprintf("%s#%d", name, k), func(d time.Time) bool { return d.Weekday() == w && (d.Day()+6)/7 == k }
	case 2:
		return name + "-7", func(d time.Time) bool { return d.Weekday() >= w || d.Weekday() == time.Sunday }
	}
	text, set := randomValues(r, 0, 6, false, "SUNMONTUEWEDTHUFRISAT")
	return text, func(d time.Time) bool { return set[d.Weekday()] }
}

// changes gives the first second of each new offset of a zone.
func changes(loc *time.Location) []int64 {
	var us []int64
	const step = 6 * 3600
	offset := func(u int64) int { _, o := time.Unix(u, 0).In(loc).Zone(); return o }
	for u := int64(0); u < 4102444800; u += step {
		if offset(u) == offset(u+step) {
			continue
		}
		low, high := u, u+step
		for high-low > 1 {
			if mid := (low + high) / 2; offset(mid) == offset(u) {
				low = mid
			} else {
				high = mid
			}
		}
		us = append(us, high)
	}
	return us
}

// firings judges every second of [from, to): the plain walk.
func (m *model) firings(loc *time.Location, from, to int64, gap cronsched.Gap, overlap cronsched.Overlap) []int64 {
	const before = 2 * 86400 // to have seen the first showing of what is repeated
	shown := make([]bool, to-from+4*before)
	base := from - 2*before
	var us []int64
	last := int64(0)
	for u := from - before; u < to; u++ {
		_, offset := time.Unix(u, 0).In(loc).Zone()
		wall := u + int64(offset)
		fires := m.matches(time.Unix(wall, 0).UTC()) && (overlap == cronsched.OverlapBoth || !shown[wall-base])
		if u > from-before && gap == cronsched.GapAfter {
			for w := last + 1; w < wall && !fires; w++ {
				fires = m.matches(time.Unix(w, 0).UTC())
			}
		}
		shown[wall-base] = true
		last = wall
		if fires && u >= from {
			us = append(us, u)
		}
	}
	return us
}

// TestNextAndPrevAgreeWithTheWalkAroundChanges compares each answer in the days
// around changes of offset with the seconds that the oracle found.
func TestNextAndPrevAgreeWithTheWalkAroundChanges(t *testing.T) {
	r := random(16)
	for _, zone := range oracleZones {
		loc := location(t, zone)
		at := changes(loc)
		for range rounds(t, 1) {
			u := r.Int64N(4102444800)
			if len(at) > 0 {
				u = at[r.IntN(len(at))]
			}
			m := randomModel(r, true)
			gap, overlap := cronsched.Gap(r.IntN(2)), cronsched.Overlap(r.IntN(2))
			checkAgainstWalk(t, r, m, loc, u, gap, overlap)
		}
	}
}

func checkAgainstWalk(t *testing.T, r *rand.Rand, m *model, loc *time.Location, u int64, gap cronsched.Gap, overlap cronsched.Overlap) {
	t.Helper()
	from, to := u-30*3600, u+30*3600
	want := m.firings(loc, from, to, gap, overlap)
	e := expression(t, m.text, loc.String()).WithGap(gap).WithOverlap(overlap)
	probes := []int64{from, u - 3601, u - 1, u, u + 1, u + 1800, u + 3600}
	for range 60 {
		probes = append(probes, from+r.Int64N(to-from))
	}
	for _, w := range want[:min(len(want), 40)] {
		probes = append(probes, w-1, w, w+1)
	}
	for _, probe := range probes {
		p := time.Unix(probe, r.Int64N(2)*500)
		next, ok := e.Next(p)
		i, _ := slices.BinarySearch(want, probe+1)
		if i < len(want) && (!ok || next.Unix() != want[i]) || i == len(want) && ok && next.Unix() < to {
			t.Fatalf("%q in %v gap=%v overlap=%v: Next(%v) = %v, want index %d of the walk %v", m.text, loc, gap, overlap, p.In(loc), next, i, brief(want, i, loc))
		}
		bound := probe
		if p.Nanosecond() > 0 {
			bound++
		}
		prev, ok := e.Prev(p)
		i, _ = slices.BinarySearch(want, bound)
		if i--; i >= 0 && (!ok || prev.Unix() != want[i]) || i < 0 && ok && prev.Unix() >= from {
			t.Fatalf("%q in %v gap=%v overlap=%v: Prev(%v) = %v, want index %d of the walk %v", m.text, loc, gap, overlap, p.In(loc), prev, i, brief(want, i, loc))
		}
		if _, fires := slices.BinarySearch(want, probe); probe >= from && probe < to && e.Matches(p) != fires {
			t.Fatalf("%q in %v gap=%v overlap=%v: Matches(%v) = %v", m.text, loc, gap, overlap, p.In(loc), !fires)
		}
	}
}

// brief formats the instants around an index.
func brief(us []int64, i int, loc *time.Location) []string {
	var s []string
	for _, u := range us[max(i-2, 0):min(max(i, 0)+3, len(us))] {
		s = append(s, time.Unix(u, 0).In(loc).Format(time.RFC3339))
	}
	return s
}

// TestNextAndPrevAgreeWithTheWalkByDays compares answers that may lie years
// away with a walk over the days of the calendar.
func TestNextAndPrevAgreeWithTheWalkByDays(t *testing.T) {
	r := random(29)
	for _, zone := range oracleZones {
		loc := location(t, zone)
		for range rounds(t, 4) {
			m := randomModel(r, false)
			e := expression(t, m.text, zone)
			p := time.Unix(r.Int64N(4102444800), 0).In(loc)
			next, ok := e.Next(p)
			if want, found := m.walkDays(p, 1); found != ok || found && !next.Equal(want) {
				t.Fatalf("%q in %v: Next(%v) = %v, %v; want %v, %v", m.text, loc, p, next, ok, want, found)
			}
			prev, ok := e.Prev(p)
			if want, found := m.walkDays(p, -1); found != ok || found && !prev.Equal(want) {
				t.Fatalf("%q in %v: Prev(%v) = %v, %v; want %v, %v", m.text, loc, p, prev, ok, want, found)
			}
		}
	}
}

// walkDays gives the first instant after p (step 1) or the last before it
// (step -1), skipping what a change skips and taking the first of what it
// repeats.
func (m *model) walkDays(p time.Time, step int) (time.Time, bool) {
	var times []int
	for s := range 86400 {
		if m.second[s%60] && m.minute[s/60%60] && m.hour[s/3600] {
			times = append(times, s)
		}
	}
	if step < 0 {
		slices.Reverse(times)
	}
	year, month, day := p.Date()
	// Begin a day on the other side: an offset may change by a whole day.
	for d := time.Date(year, month, day-step, 0, 0, 0, 0, time.UTC); d.Year() >= 1969 && d.Year() <= 2100; d = d.AddDate(0, 0, step) {
		if !m.matchesDay(d.Date()) {
			continue
		}
		for _, s := range times {
			if at, ok := firstShowing(d.Unix()+int64(s), p.Location()); ok && at.Compare(p) == step {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

// firstShowing gives the first instant at which a location's wall clock shows
// wall, trying all offsets of the days around.
func firstShowing(wall int64, loc *time.Location) (first time.Time, ok bool) {
	for near := wall - 30*3600; near <= wall+30*3600; near += 6 * 3600 {
		_, offset := time.Unix(near, 0).In(loc).Zone()
		at := time.Unix(wall-int64(offset), 0).In(loc)
		if _, o := at.Zone(); o == offset && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}
