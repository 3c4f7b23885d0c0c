package taskmanager_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A readerFunc is a function as an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// filled is an endless reader of one byte.
func filled(b byte) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		copy(p, bytes.Repeat([]byte{b}, len(p)))
		return len(p), nil
	})
}

func seeded() io.Reader { return rand.NewChaCha8([32]byte{1}) }

func TestAReaderThatFailsIsReplacedAndReportedOnce(t *testing.T) {
	broken := errors.New("no entropy")
	for name, c := range map[string]struct {
		reader io.Reader
		want   error
	}{
		"fails":              {iotest.ErrReader(broken), broken},
		"fails in the midst": {io.MultiReader(io.LimitReader(seeded(), 700), iotest.ErrReader(broken)), broken},
		"ends":               {strings.NewReader(""), io.EOF},
		"ends in the midst":  {io.LimitReader(seeded(), 100), io.ErrUnexpectedEOF},
		"gives nothing":      {readerFunc(func([]byte) (int, error) { return 0, nil }), io.ErrNoProgress},
	} {
		t.Run(name, func(t *testing.T) {
			var reports []error
			e := taskmanager.NewEntropy(c.reader, func(err error) { reports = append(reports, err) })
			seen := map[uint64]bool{}
			for range 1000 {
				seen[e.Uint64()] = true
			}
			if len(seen) != 1000 {
				t.Errorf("%d different numbers of 1000", len(seen))
			}
			if len(reports) != 1 || !errors.Is(reports[0], c.want) {
				t.Errorf("reported %v, want %v once", reports, c.want)
			}
		})
	}
}

func TestAReaderThatGivesLittleAtATimeIsReadToTheEnd(t *testing.T) {
	want, whole := make([]uint64, 200), seeded()
	for i := range want {
		if err := binary.Read(whole, binary.NativeEndian, &want[i]); err != nil {
			t.Fatal(err)
		}
	}
	idle := 0
	for name, reader := range map[string]io.Reader{
		"whole":    seeded(),
		"one byte": iotest.OneByteReader(seeded()),
		"half":     iotest.HalfReader(seeded()),
		"at times nothing": readerFunc(func(src io.Reader) readerFunc {
			return func(p []byte) (int, error) {
				if idle++; idle%3 > 0 {
					return 0, nil
				}
				return src.Read(p[:1])
			}
		}(seeded())),
	} {
		e := taskmanager.NewEntropy(reader, func(err error) { t.Errorf("%s: reported %v", name, err) })
		for i, w := range want {
			if got := e.Uint64(); got != w {
				t.Fatalf("%s: number %d = %#x, want %#x", name, i, got, w)
			}
		}
	}
}

func TestAReaderThatRecoversIsUsedAgain(t *testing.T) {
	good, calls := seeded(), 0
	e := taskmanager.NewEntropy(readerFunc(func(p []byte) (int, error) {
		if calls++; calls%2 == 1 {
			return 0, errors.New("not now")
		}
		return good.Read(p)
	}), func(error) {})
	_ = e.Uint64()
	var want uint64
	if err := binary.Read(seeded(), binary.NativeEndian, &want); err != nil {
		t.Fatal(err)
	}
	if got := e.Uint64(); got != want {
		t.Errorf("the number after the failure = %#x, want the reader's %#x", got, want)
	}
}

func TestRandomDurationsKeepTheirBoundsAtTheExtremes(t *testing.T) {
	ones, zeros := filled(0xff), filled(0)
	for _, n := range []time.Duration{math.MinInt64, -1, 0, 1, 2, 3, 5, 1000, 250 * time.Millisecond, time.Hour, 1 << 62, 1<<62 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for name, c := range map[string]struct {
			reader      io.Reader
			below, upTo time.Duration // -1: anything in the bounds
		}{
			"all ones":  {ones, max(0, max(0, n)-1), max(0, n)},
			"all zeros": {zeros, 0, 0},
			"random":    {seeded(), -1, -1},
		} {
			e := taskmanager.NewEntropy(c.reader, func(err error) { t.Errorf("reported %v", err) })
			for range 100 {
				below := e.Below(n)
				if below < 0 || below >= max(1, n) || c.below >= 0 && below != c.below {
					t.Fatalf("%s: below(%d) = %d, want %d", name, n, below, c.below)
				}
				if n < 0 {
					continue // upTo is for ceilings, which are not negative
				}
				upTo := e.UpTo(n)
				if upTo < 0 || upTo > n || c.upTo >= 0 && upTo != c.upTo {
					t.Fatalf("%s: upTo(%d) = %d, want %d", name, n, upTo, c.upTo)
				}
			}
		}
	}
}

func TestRandomDurationsReachBothEnds(t *testing.T) {
	e := taskmanager.NewEntropy(seeded(), func(error) {})
	var below, upTo [4]int
	for range 1000 {
		below[e.Below(3)]++
		upTo[e.UpTo(3)]++
	}
	for i := range 4 {
		if (below[i] > 0) != (i < 3) || upTo[i] == 0 {
			t.Errorf("%d drawn %d times below 3, %d times up to 3", i, below[i], upTo[i])
		}
	}
}

func TestRandomDurationsAreUniform(t *testing.T) {
	const n, bins = 100_000, 50
	for name, reader := range map[string]io.Reader{
		"buffered":    seeded(),
		"fallen back": nil,
	} {
		var draws [3][]float64
		bound := [3]time.Duration{250 * time.Millisecond, 3 << 61, 7919}
		if reader == nil {
			reader = iotest.ErrReader(errors.New("none"))
		}
		e := taskmanager.NewEntropy(reader, func(error) {})
		for range n {
			for i, b := range bound {
				draws[i] = append(draws[i], float64(e.Below(b))/float64(b))
			}
		}
		for i, shares := range draws {
			if got := chiSquare(shares, bins); got > 180 { // 49 degrees of freedom: 1 in 10^16
				t.Errorf("%s: below(%d) is not uniform: chi-square %.1f", name, bound[i], got)
			}
		}
	}
}

// A bound just above half of all numbers is where a plain remainder is worst.
func TestRandomDurationsFavourNobodyAtAnAwkwardBound(t *testing.T) {
	e := taskmanager.NewEntropy(seeded(), func(error) {})
	var shares []float64
	for range 60_000 {
		shares = append(shares, float64(e.Below(3<<61)%3)/3+0.1)
	}
	if got := chiSquare(shares, 3); got > 75 { // 2 degrees of freedom: 1 in 10^16
		t.Errorf("remainders are not uniform: chi-square %.1f", got)
	}
}

func TestAManagerWithoutRandomBytesSchedulesBacksOffAndSaysSoOnce(t *testing.T) {
	w := newWorld(t)
	taskmanager.SetRandomOf(w.m, iotest.ErrReader(errors.New("no entropy")))
	for i := range 50 {
		h, err := w.m.ScheduleRecurring(fmt.Sprint(i), time.Second, fails)
		w.keep(h, err, time.Second)
	}
	w.advance(10 * time.Second)
	lines := 0
	w.mu.Lock()
	for _, line := range w.logged {
		if strings.Contains(line, "crypto/rand failed") {
			lines++
		}
	}
	w.mu.Unlock()
	if lines != 1 {
		t.Errorf("%d lines say that crypto/rand failed, want 1", lines)
	}
	if got := w.m.Totals(); got.Failures < 50 {
		t.Errorf("Failures = %d, want 50 and more", got.Failures)
	}
}

func TestAManagerWhoseRandomBytesAreAllTheSameDoesNotHang(t *testing.T) {
	for _, b := range []byte{0, 0xff} {
		m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
		taskmanager.SetRandomOf(m, filled(b))
		h := must(m.ScheduleRecurring("task", time.Second, fails))
		clk.Advance(time.Minute)
		if h.Failures() < 3 {
			t.Errorf("bytes %#x: Failures = %d, want 3 and more", b, h.Failures())
		}
	}
}

// BenchmarkEntropy is the price of a random number, buffered as the engine does it,
// and read from the system one by one.
func BenchmarkEntropy(b *testing.B) {
	b.Run("buffered", func(b *testing.B) {
		e := taskmanager.NewEntropy(taskmanager.SystemRandom(), func(err error) { b.Error(err) })
		b.ReportAllocs()
		for range b.N {
			_ = e.Below(time.Second)
		}
	})
	b.Run("unbuffered", func(b *testing.B) {
		var buf [8]byte
		random := taskmanager.SystemRandom()
		b.ReportAllocs()
		for range b.N {
			if _, err := io.ReadFull(random, buf[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
