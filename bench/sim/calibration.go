// Package sim is a fleet of simulated inference engines on virtual time, driven
// by the real strategies through the real router and loadview.
//
// A run is a function of its Config: the same result on every machine and under
// any load. It neither waits nor reads a clock.
//
// An engine simulates vLLM: in each step, every decoding request gets one token,
// and prompts are computed in chunks under a budget of tokens. Blocks of KV
// cache have reference counts, are found again by the hash of everything up to
// their end, and are reused least recently used first. The queue is served in
// order, and its head waits for blocks. The youngest request gives its blocks
// back if the others need them for decoding. The type engine lists the
// simplifications.
package sim

import (
	"fmt"
	"math"
	"time"
)

// Calibration has the speed and the memory of one replica. The time of a step is
//
//	Step + PrefillToken*p + Attention*a + Sequence*d + DecodeContext*c + LoadToken*l
//
// where p is the number of prompt tokens computed in it, a the sum over these of
// their position (the tokens that each attends to, itself included), d the number
// of requests that decode, c the sum of their lengths in tokens, and l the tokens
// brought in from CPU memory.
type Calibration struct {
	Name  string
	About string // the source of the numbers

	Step, PrefillToken, Attention, Sequence, DecodeContext, LoadToken Seconds

	StepTokens int // the budget of tokens a step
	Sequences  int // the greatest number of requests that run at once
	BlockSize  int // tokens
	Blocks     int // in the device's KV cache
	CPUBlocks  int // in CPU memory, for blocks that the device evicts; 0: none
}

// Seconds is a length of time. A run rounds each to a picosecond; all sums are
// exact from there on.
type Seconds float64

// Calibrations are those known by name, the default first.
func Calibrations() []Calibration {
	h100x2 := Calibration{
		Name:          "70b-2xh100",
		About:         "a 70B model on two H100, after llm-d's published figures",
		Step:          14e-3,
		PrefillToken:  46e-6,
		Attention:     0.8e-9,
		DecodeContext: 56e-9,
		StepTokens:    8192, Sequences: 256, BlockSize: 512, Blocks: 586,
	}
	tiered := h100x2
	tiered.Name = "70b-2xh100-cpu"
	tiered.About = h100x2.About + "; four times the cache again in CPU memory, at 6.5 us a token (320 KiB of KV " +
		"cache a token over 50 GB/s: assumed)"
	tiered.CPUBlocks, tiered.LoadToken = 4*h100x2.Blocks, 6.5e-6
	fine := h100x2
	fine.Name = "70b-2xh100-16"
	fine.About = h100x2.About + ", in blocks of 16 tokens, vLLM's default"
	fine.BlockSize, fine.Blocks = 16, h100x2.Blocks*512/16
	return []Calibration{h100x2, tiered, fine, {
		Name: "8b-h100",
		About: "Llama-3.1-8B-Instruct on one H100, vLLM 0.8.4: beta_coeffs and total_kv_blocks of github.com/inference-sim/" +
			"inference-sim, defaults.yaml at 1a6eb35, with a model without attention (step = b0 + b1 * prefill tokens + " +
			"b2 * decode tokens); the budgets a step are assumed",
		Step: 5752.7e-6, PrefillToken: 17.251e-6, Sequence: 5.999e-6,
		StepTokens: 8192, Sequences: 256, BlockSize: 16, Blocks: 29205,
	}}
}

// CalibrationByName returns the calibration of that name, the default for "".
func CalibrationByName(name string) (Calibration, error) {
	all := Calibrations()
	if name == "" {
		return all[0], nil
	}
	known := ""
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
		known += " " + c.Name
	}
	return Calibration{}, fmt.Errorf("sim: no calibration %q; there are%s", name, known)
}

// Check returns an error for each invalid field of c.
func (c *Calibration) Check() error {
	for _, v := range []Seconds{c.PrefillToken, c.Attention, c.Sequence, c.DecodeContext, c.LoadToken} {
		if !(v >= 0 && v <= 1e-3) {
			return fmt.Errorf("sim: calibration %q: %v s a token is not one of 0 to 1 ms", c.Name, float64(v))
		}
	}
	if !(c.Step >= 1e-9 && c.Step <= 100) {
		return fmt.Errorf("sim: calibration %q: a step of %v s is not one of 1 ns to 100 s", c.Name, float64(c.Step))
	}
	if c.StepTokens < 1 || c.Sequences < 1 || c.BlockSize < 1 || c.Blocks < 1 || c.CPUBlocks < 0 ||
		c.StepTokens < c.Sequences {
		return fmt.Errorf("sim: calibration %q: needs tokens a step (no fewer than sequences), sequences, a block size and "+
			"blocks", c.Name)
	}
	return nil
}

// instant is virtual time in picoseconds since the start of a run. Integers make
// the end of many steps at once the same as that of each after the other.
type instant int64

const (
	picosecond instant = 1
	second             = 1e12 * picosecond
	forever            = instant(math.MaxInt64)
)

func at(d time.Duration) instant { return instant(d) * 1000 }

func (t instant) duration() time.Duration { return time.Duration(t / 1000) }
func (t instant) seconds() float64        { return float64(t) / float64(second) }

// costs are the terms of a step on one replica, at its present speed.
type costs struct {
	step, prefill, attention, sequence, context, load instant
}

func (c *Calibration) costs(speed float64) costs {
	ps := func(s Seconds) instant { return instant(math.Round(float64(s) * float64(second) / speed)) }
	return costs{ps(c.Step), ps(c.PrefillToken), ps(c.Attention), ps(c.Sequence), ps(c.DecodeContext), ps(c.LoadToken)}
}

// decode returns the time of m steps in which nothing happens but that n requests,
// which hold tokens between them, decode. Step i sees tokens + i*n.
func (c *costs) decode(m, n, tokens int) instant {
	s := c.step + c.sequence*instant(n)
	sum := instant(m)*instant(tokens) + instant(n)*instant(m)*instant(m+1)/2
	return instant(m)*s + c.context*sum
}

// prefillTime returns the time of a chunk of n tokens that follow have others.
func (c *costs) prefillTime(n, have int) instant {
	sum := instant(n)*instant(have) + instant(n)*instant(n+1)/2
	return c.prefill*instant(n) + c.attention*sum
}
