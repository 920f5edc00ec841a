package vllmtest

import "time"

// stepClock is an engine's own clock, in nanoseconds without TimeScale: it advances by the time of each step, however
// long the machine took for it.
type stepClock struct {
	at    float64   // at the begin of the step under way, or at the end of the last
	step  float64   // of the step under way; 0: none is
	began time.Time // when the machine began it
	scale float64
}

func (c *stepClock) begin(now time.Time, step, scale float64) {
	c.began, c.step, c.scale = now, step, scale
}

func (c *stepClock) end() {
	c.at += c.step
	c.step = 0
}

// now returns the time within a step that has begun, at the most its end.
func (c *stepClock) now(t time.Time) float64 {
	if c.step == 0 || c.scale == 0 {
		return c.at
	}
	return c.at + min(max(float64(t.Sub(c.began))/c.scale, 0), c.step)
}
