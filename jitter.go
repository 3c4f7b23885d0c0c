package taskmanager

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"math/bits"
	randv2 "math/rand/v2"
	"sync"
	"time"
)

// entropy hands out random numbers from crypto/rand. One read fetches a few
// hundred bytes, since most of a read's price does not depend on its length:
// BenchmarkEntropy has 34 ns a number against 48 with getrandom in the vDSO, and
// without that each read is a system call. A reader that fails makes it fall back
// to math/rand/v2, for jitter is not a secret and no reason to stop a server; the
// failure is reported once.
type entropy struct {
	reader io.Reader   // rand.Reader, but for tests
	failed func(error) // called once, with no lock held

	mu     sync.Mutex // guards the fields below, and reader
	buf    [512]byte
	left   int // unread bytes at the end of buf
	failOn sync.Once
}

func newEntropy(failed func(error)) *entropy {
	return &entropy{reader: rand.Reader, failed: failed}
}

// uint64 returns 64 uniform random bits.
func (e *entropy) uint64() uint64 {
	v, err := e.read()
	if err != nil {
		e.failOn.Do(func() { e.failed(err) })
		return randv2.Uint64()
	}
	return v
}

func (e *entropy) read() (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left < 8 {
		// io.ReadFull and not rand.Read: the latter ends the process when the
		// reader fails.
		if _, err := io.ReadFull(insistent{e.reader}, e.buf[:]); err != nil {
			return 0, err
		}
		e.left = len(e.buf)
	}
	at := len(e.buf) - e.left
	v := binary.NativeEndian.Uint64(e.buf[at:])
	clear(e.buf[at : at+8])
	e.left -= 8
	return v, nil
}

// insistent makes an error of a reader that gives neither bytes nor an error, time
// after time: io.ReadFull would ask it for ever.
type insistent struct{ io.Reader }

func (r insistent) Read(p []byte) (n int, err error) {
	for range 100 { // as package bufio does
		if n, err = r.Reader.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// below returns a uniform duration in [0, n); 0 if n <= 0.
//
// It is Lemire's multiply-and-reject method ("Fast Random Integer Generation in
// an Interval", 2019): exactly uniform, and almost never a second draw.
func (e *entropy) below(n time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	bound := uint64(n)
	hi, lo := bits.Mul64(e.uint64(), bound)
	if lo < bound {
		threshold := -bound % bound
		// The bound on draws is for a reader that always gives the same.
		for draws := 0; lo < threshold && draws < 100; draws++ {
			hi, lo = bits.Mul64(e.uint64(), bound)
		}
	}
	return time.Duration(hi)
}

// upTo returns a uniform duration in [0, n], both ends included.
func (e *entropy) upTo(n time.Duration) time.Duration {
	if n >= maxDuration {
		return time.Duration(e.uint64() >> 1)
	}
	return e.below(n + 1)
}
