package host

import "time"

// Noise is what else the machine did while a measurement ran, in cores. Known
// is false where the system does not tell.
type Noise struct {
	Known   bool    `json:"known"`
	Foreign float64 `json:"foreign_cores"` // used by other processes
	Steal   float64 `json:"steal_cores"`   // taken by the hypervisor
}

// Quiet is the bound under which a measurement counts as undisturbed.
const Quiet = 0.15

// A Watch measures noise from StartWatch to Stop.
type Watch struct {
	at          time.Time
	busy, steal time.Duration
	own         time.Duration
	ok          bool
}

// StartWatch begins to watch.
func StartWatch() Watch {
	busy, steal, ok := machineCPU()
	return Watch{at: time.Now(), busy: busy, steal: steal, own: CPU(), ok: ok}
}

// Stop returns the noise since the start. used is the processor time of the
// measured child, which is not noise, and neither is that of this process.
func (w Watch) Stop(used time.Duration) Noise {
	busy, steal, ok := machineCPU()
	wall := time.Since(w.at).Seconds()
	if !ok || !w.ok || wall <= 0 {
		return Noise{}
	}
	foreign := busy - w.busy - used - (CPU() - w.own)
	return Noise{
		Known:   true,
		Foreign: max(0, foreign.Seconds()/wall),
		Steal:   (steal - w.steal).Seconds() / wall,
	}
}
