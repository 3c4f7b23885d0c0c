package cronsched_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

func TestCivilDatesAreTheTimePackages(t *testing.T) {
	for day := range uint32(cronsched.DayLimit) {
		year, month, dom, back := cronsched.CivilOfDay(day)
		want := time.Unix(int64(day)*86400, 0).UTC()
		if y, m, d := want.Date(); int(year) != y || int(month) != int(m) || int(dom) != d || back != day {
			t.Fatalf("day %d is %d-%d-%d, want %v; back %d", day, year, month, dom, want, back)
		}
	}
}

// TestTheTableOfAZoneIsTheTimePackages compares offsets at each end of each
// range and in between, in the zones of the oracle.
func TestTheTableOfAZoneIsTheTimePackages(t *testing.T) {
	r := random(1)
	for _, zone := range oracleZones {
		loc := location(t, zone)
		starts, _ := cronsched.OffsetRanges(loc)
		if want := changes(loc); len(starts) < len(want) {
			t.Errorf("%s: %d changes, want %d", zone, len(starts), len(want))
		}
		probes := []int64{0, -86400, 4102444799, 4102531200}
		for _, u := range starts {
			probes = append(probes, u-1, u, u+1)
		}
		for range 200 {
			probes = append(probes, r.Int64N(4102444800))
		}
		checkTable(t, loc, probes)
	}
}

func checkTable(t *testing.T, loc *time.Location, probes []int64) {
	t.Helper()
	for _, u := range probes {
		_, want := time.Unix(u, 0).In(loc).Zone()
		if got := cronsched.TableOffset(loc, u); got != int64(want) {
			t.Errorf("%v: offset at %v = %d, want %d", loc, time.Unix(u, 0).UTC(), got, want)
		}
	}
}

// ruleZone makes a location of a POSIX rule, which holds from the beginning.
func ruleZone(t *testing.T, rule string) *time.Location {
	t.Helper()
	header := func(version byte, types, chars uint32) []byte {
		h := append([]byte("TZif"), version)
		h = append(h, make([]byte, 15)...)
		for _, count := range []uint32{0, 0, 0, 1, types, chars} {
			h = binary.BigEndian.AppendUint32(h, count)
		}
		return h
	}
	first := append(header('2', 1, 4), make([]byte, 4+1+6+4)...)
	second := append(header('2', 1, 4), make([]byte, 8+1+6+4)...)
	loc, err := time.LoadLocationFromTZData(rule, append(append(first, second...), "\n"+rule+"\n"...))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestTheTableIsRightOnTheLastDayOfALeapYear has changes there, where the time
// package gives ranges that end too early.
func TestTheTableIsRightOnTheLastDayOfALeapYear(t *testing.T) {
	for _, rule := range []string{"AAA-1BBB,J365/12,J10/0", "AAA5BBB,J90/2,J365/3"} {
		loc := ruleZone(t, rule)
		var probes []int64
		for year := 1970; year < 2100; year++ {
			for hour := -60; hour < 60; hour++ {
				probes = append(probes, time.Date(year, 12, 31, hour, 0, 0, 0, time.UTC).Unix())
			}
		}
		checkTable(t, loc, probes)
		if starts, _ := cronsched.OffsetRanges(loc); len(starts) < 200 {
			t.Errorf("%s: %d changes in 130 years", rule, len(starts))
		}
	}
}

// TestNoZoneChangesTwiceWithinAWeek holds for every zone of the database what
// the search relies on, and that its table is right.
func TestNoZoneChangesTwiceWithinAWeek(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "zones.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(2, 2))
	for _, name := range strings.Fields(string(text)) {
		loc := location(t, name)
		starts, offsets := cronsched.OffsetRanges(loc)
		for i, u := range starts {
			if i > 0 && u-starts[i-1] < 6*86400 {
				t.Errorf("%s changes at %v and %v", name, time.Unix(starts[i-1], 0).UTC(), time.Unix(u, 0).UTC())
			}
			if offsets[i] < -86400 || offsets[i] > 86400 {
				t.Errorf("%s has the offset %d", name, offsets[i])
			}
		}
		probes := slices.Clone(starts)
		for _, u := range starts {
			probes = append(probes, u-1)
		}
		for range 50 {
			probes = append(probes, r.Int64N(4102444800))
		}
		checkTable(t, loc, probes)
	}
}

// TestLocationsThatChangeOften draws locations that are not of the database:
// their offsets change every few hours, so that a wall second is shown many
// times. Every search still goes on, ends, and tells instants that match.
func TestLocationsThatChangeOften(t *testing.T) {
	r := random(31)
	for k := range rounds(t, 60) {
		loc := restlessLocation(t, r, fmt.Sprint("Restless", k))
		for _, text := range []string{"* * * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *"} {
			gap, overlap := cronsched.Gap(r.IntN(2)), cronsched.Overlap(r.IntN(2))
			e := expression(t, text, "UTC").In(loc).WithGap(gap).WithOverlap(overlap)
			for p, n := time.Unix(1e9-86400, 0), 0; n < 200; n++ {
				next, ok := e.Next(p)
				if !ok || !next.After(p) || !e.Matches(next) {
					t.Fatalf("%q gap=%v overlap=%v: Next(%v) = %v, %v", text, gap, overlap, p, next, ok)
				}
				p = next.Add(time.Duration(r.IntN(200)) * time.Second)
			}
			for p, n := time.Unix(1e9+2*86400, 0), 0; n < 200; n++ {
				prev, ok := e.Prev(p)
				if !ok || !prev.Before(p) || !e.Matches(prev) {
					t.Fatalf("%q gap=%v overlap=%v: Prev(%v) = %v, %v", text, gap, overlap, p, prev, ok)
				}
				p = prev.Add(-time.Duration(r.IntN(200)) * time.Second)
			}
		}
	}
}

// restlessLocation makes a location of zone data in the format of RFC 8536,
// version 1.
func restlessLocation(t *testing.T, r *rand.Rand, name string) *time.Location {
	t.Helper()
	offsets := []int32{0, 3600, 7200, -3600, 1800, 43200, -43200, 10800}
	changes := 2 + r.IntN(6)
	data := append([]byte("TZif"), make([]byte, 16)...)
	for _, n := range []int{0, 0, 0, changes, len(offsets), len("X\x00")} {
		data = binary.BigEndian.AppendUint32(data, uint32(n))
	}
	at := uint32(1e9)
	for range changes {
		at += 600 + r.Uint32N(8000)
		data = binary.BigEndian.AppendUint32(data, at)
	}
	for range changes {
		data = append(data, byte(r.IntN(len(offsets))))
	}
	for _, offset := range offsets {
		data = append(binary.BigEndian.AppendUint32(data, uint32(offset)), 0, 0)
	}
	loc, err := time.LoadLocationFromTZData(name, append(data, "X\x00"...))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestOnlyZonesThatAreTheSameEverywhereAreTaken(t *testing.T) {
	for _, name := range []string{"localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "Local", "", "../zoneinfo/UTC"} {
		if s, err := cronsched.Parse("cron 0 0 * * * tz=" + name); err == nil {
			t.Errorf("tz=%s is taken: %v", name, s)
		}
	}
}
