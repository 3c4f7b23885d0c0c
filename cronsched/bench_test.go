package cronsched_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

var benchmarked = []string{"*/5 * * * *", "0 0 22 L * ?", "0 0 12 1 1 *", "0 30 9 * * MON-FRI", "0 0 0 29 2 *"}

// randomInstants gives instants of the years 2020 to 2040 in no order.
func randomInstants(n int) []time.Time {
	r := rand.New(rand.NewPCG(1, 2))
	ts := make([]time.Time, n)
	for i := range ts {
		ts[i] = time.Unix(1577836800+r.Int64N(20*365*86400), 0).UTC()
	}
	return ts
}

func eachBenchmark(b *testing.B, f func(b *testing.B, e *cronsched.Expression)) {
	for _, text := range benchmarked {
		for _, zone := range []string{"UTC", "America/New_York"} {
			e := expression(b, text, zone)
			b.Run(text+"/"+zone, func(b *testing.B) {
				b.ReportAllocs()
				f(b, e)
			})
		}
	}
}

// BenchmarkNextChain asks for the instant after the previous answer, 16 in a
// row from 2026.
func BenchmarkNextChain(b *testing.B) {
	eachBenchmark(b, func(b *testing.B, e *cronsched.Expression) {
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at, i := from, 0
		for b.Loop() {
			at, _ = e.Next(at)
			if i++; i&15 == 0 {
				at = from
			}
		}
	})
}

func BenchmarkNextRandom(b *testing.B) {
	ts := randomInstants(256)
	eachBenchmark(b, func(b *testing.B, e *cronsched.Expression) {
		i := 0
		for b.Loop() {
			e.Next(ts[i&255])
			i++
		}
	})
}

func BenchmarkPrevRandom(b *testing.B) {
	ts := randomInstants(256)
	eachBenchmark(b, func(b *testing.B, e *cronsched.Expression) {
		i := 0
		for b.Loop() {
			e.Prev(ts[i&255])
			i++
		}
	})
}

func BenchmarkMatches(b *testing.B) {
	ts := randomInstants(256)
	eachBenchmark(b, func(b *testing.B, e *cronsched.Expression) {
		i := 0
		for b.Loop() {
			e.Matches(ts[i&255])
			i++
		}
	})
}

// BenchmarkSchedule has what a schedule adds to its expression.
func BenchmarkSchedule(b *testing.B) {
	weekend := cronsched.WeeklyCalendar(nil, nil)
	holidays := cronsched.CompositeCalendar(weekend, cronsched.HolidayCalendar([]time.Time{date(2026, 12, 25)}, nil))
	ts := randomInstants(256)
	for name, text := range map[string]string{
		"plain":    "cron 0 0 9 * * *",
		"window":   "cron 0 0 9 * * * start=2020-01-01T00:00:00Z end=2050-01-01T00:00:00Z",
		"calendar": "cron 0 0 9 * * * calendar=c",
		"roll":     "cron 0 0 9 1 * * calendar=c roll=next",
		"every":    "every 10m calendar=c",
	} {
		s := bound(b, text, holidays)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Next(ts[i&255])
				i++
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"expression": "0 30 9 * * MON-FRI",
		"zone":       "cron 0 30 9 * * MON-FRI tz=America/New_York",
		"every":      "every 00:10:00 x5",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cronsched.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseCron(b *testing.B) {
	for _, text := range benchmarked {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cronsched.ParseCron(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
