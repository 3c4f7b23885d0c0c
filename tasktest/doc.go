// Package tasktest makes time deterministic in tests of code that uses package
// taskmanager: no sleeps, no polls, no flakes.
//
//	func TestCleanup(t *testing.T) {
//		m, clk := tasktest.New(t)
//		h, err := m.ScheduleRecurring("cleanup", 30*time.Second, cleanup, taskmanager.WithJitter(0))
//		…
//		clk.Advance(time.Minute) // both runs have started at their exact instants, and ended
//	}
//
// Advance moves time from due instant to due instant. At each, the runs that fall
// due start in order of due time, then of scheduling, and one has ended or is
// parked before the next starts.
//
// A run is parked while it waits in [Clock.Sleep] or [Gate.Wait]: that is how a
// test has a body that takes its time, or is stuck. In every other wait, for a
// channel or a lock, Advance waits with it, and after ten seconds of real time
// without progress fails the test with the stacks of all goroutines. In a bubble
// of testing/synctest a run is parked, too, when it is durably blocked.
//
// The clock has two hands. [Clock.StepWall] moves the wall clock alone, as an
// administrator or NTP does, or a machine that was suspended;
// [Clock.Stall] lets time pass without anything being run, as a process that was
// stopped sees it.
//
// For code that needs a [clock.Mock] of github.com/benbjohnson/clock, give it to
// taskmanager.WithClock and move it with [AdvanceMock]: exact and ordered too, but
// only runs that end by themselves are settled, and each instant costs the Mock a
// millisecond of real time.
package tasktest
