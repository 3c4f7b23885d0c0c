package tasktest

import "time"

// SetPatience sets the real time that a move waits without progress.
func (c *Clock) SetPatience(d time.Duration) { c.patience = d }
