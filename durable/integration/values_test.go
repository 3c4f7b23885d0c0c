package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// What somebody might take for something else on its way to a column: in an array, in JSON,
// or as a number that is a float64 somewhere.
var (
	oddTexts = []string{"", "\u2028\u2029", "😀\U0010ffff", "\x01\x1f\x7f\b\f\n\r\t", `\u0000`, `\"`, `\`, "<script>&amp;'", "\ufffd\ufeff", "null", "NULL",
		"0", "1e400", "{}", "{", "[1]", ",", "true", "\ue000\ufffe", " ", strings.Repeat("😀<\x02", 2000)}
	oddNumbers = []int64{0, 1, -1, 1 << 53, 1<<53 + 1, -(1<<53 + 1), math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}
	oddData    = [][]byte{nil, []byte(`"x"`), {0}, {0xff, 0xfe, 0, 0x80}, []byte("null"), allBytes(64 << 10), []byte(`\x00`), {0xe9}}
)

func allBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func oddText(n int) string  { return oddTexts[n%len(oddTexts)] }
func oddName(n int) string  { return oddTexts[n%(len(oddTexts)-1)] } // not the long one
func oddNumber(n int) int64 { return oddNumbers[n%len(oddNumbers)] }
func oddJSON(n int) []byte  { return bytes.Clone(oddData[n%len(oddData)]) }

// oddTrigger is a trigger with values of that number, and after it.
func oddTrigger(r durable.TriggerRow, n int) durable.TriggerRow {
	r.Description, r.Reason, r.IdempotencyKey, r.Origin = oddText(n), oddText(n+1), oddText(n+2), oddName(n+3)
	r.Fired, r.Passed, r.Data = oddNumber(n), oddNumber(n+3), oddJSON(n)
	return r
}

// Batches of one have other statements than those of several.
func TestValuesComeBackAsTheyWere(t *testing.T) {
	const many = 40
	for _, d := range databases {
		for _, size := range []int{1, 2, many} {
			t.Run(fmt.Sprintf("%s/%d at a time", d.name, size), func(t *testing.T) {
				s, _ := d.store(t, 4)
				jobOf(t, s, "a", true)
				want := map[string]durable.TriggerRow{}
				for from := 1; from <= many; from += size {
					var rows []durable.TriggerRow
					for n := from; n < min(from+size, many+1); n++ {
						r := oddTrigger(oneShot("a", n), n)
						rows = append(rows, r)
						r.Version = 1
						want[r.ID] = r
					}
					enqueue(t, s, durable.EnqueueOnly, "a", rows...)
				}
				wantTriggers(t, s, want)

				// Some runs take the place of their trigger, some do not, and some triggers stay.
				runs := map[string]durable.RunRow{}
				var claimed []durable.Claimed
				for range (many + size - 1) / size {
					claimed = append(claimed, claimAs(t, s, "n", size, func(due durable.Due) durable.Verdict {
						row := due.Trigger
						n := int(row.ScheduledAt.UnixMicro() % 100)
						if row.ID > idOf(30) {
							row = oddTrigger(row, n+1)
							row.State = durable.StateComplete
							return durable.Verdict{Trigger: row}
						}
						v := runIt(due)
						v.Run.Trigger = row.Origin
						switch {
						case row.ID > idOf(20):
							v.Run.Trigger = oddName(n)
						case row.ID > idOf(10):
							v.Run.Data = oddJSON(n + 1)
						}
						v.Run.Passed, v.Run.Message, v.Run.Detail, v.Run.Code = oddNumber(n+1), oddText(n+3), oddText(n+4), durable.Code(oddName(n+5))
						return v
					})...)
				}
				for _, c := range claimed {
					n := int(c.Run.ScheduledAt.UnixMicro() % 100)
					data := n
					if n > 10 && n <= 20 {
						data++
					}
					if !bytes.Equal(c.Run.Data, oddJSON(data)) || c.Run.IdempotencyKey != oddText(n+2) ||
						c.Run.Passed != oddNumber(n+1) || c.Run.Message != oddText(n+3) {
						t.Errorf("claimed %s, want the values of number %d", short(*c.Run), n)
					}
					delete(want, c.Run.ID)
					runs[c.Run.ID] = *c.Run
				}
				for id, row := range want {
					row = oddTrigger(row, int(row.ScheduledAt.UnixMicro()%100)+1)
					row.State, row.Version = durable.StateComplete, 2
					want[id] = row
				}
				wantTriggers(t, s, want)
				wantRuns(t, s, runs)

				ends := endsOf(claimed)
				for i := range ends {
					run := &ends[i].Run
					run.Message, run.Detail, run.Code, run.Duration = oddText(i), oddText(i+5), durable.Code(oddName(i+6)), time.Duration(oddNumber(i))
					runs[run.ID] = *run
				}
				for from := 0; from < len(ends); from += size {
					finishAll(t, s, ends[from:min(from+size, len(ends))])
				}
				wantRuns(t, s, runs)
			})
		}
	}
}

func wantTriggers(t testing.TB, s durable.Store, want map[string]durable.TriggerRow) {
	t.Helper()
	states, err := s.Jobs(t.Context(), durable.JobQuery{Names: []string{"a"}})
	if err != nil || len(states) != 1 || len(states[0].Triggers) != len(want) {
		t.Fatalf("Jobs = %d jobs, %v, want one with %d triggers", len(states), err, len(want))
	}
	for _, row := range states[0].Triggers {
		if !reflect.DeepEqual(row, want[row.ID]) {
			t.Errorf("trigger is %s, want %s", short(row), short(want[row.ID]))
		}
	}
}

// wantRuns wants these, whenever they ended.
func wantRuns(t testing.TB, s durable.Store, want map[string]durable.RunRow) {
	t.Helper()
	rows, err := s.Runs(t.Context(), durable.RunQuery{})
	if err != nil || len(rows) != len(want) {
		t.Fatalf("Runs = %d, %v, want %d", len(rows), err, len(want))
	}
	for _, row := range rows {
		want := want[row.ID]
		if !row.EndedAt.IsZero() {
			row.EndedAt, want.TriggerID = time.Time{}, "" // which is only known of active ones
		}
		if !reflect.DeepEqual(row, want) {
			t.Errorf("run is %s, want %s", short(row), short(want))
		}
	}
}

// short tells a row's values, and the beginning of long ones.
func short(row any) string {
	v := reflect.ValueOf(row)
	list := make([]string, v.NumField())
	for i := range list {
		value := v.Field(i).Interface()
		if data, ok := value.(json.RawMessage); ok {
			value = string(data)
		}
		list[i] = fmt.Sprintf("%.60q", fmt.Sprint(value))
	}
	return strings.Join(list, " ")
}
