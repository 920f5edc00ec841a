package trace

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Generated returns the generators. Their rates are the mean numbers of requests
// a second, their arrivals are Poisson, and a seed changes everything.
func Generated() []Source {
	gen := func(name, about string, rates []float64, make func(b *maker, rate float64)) Source {
		return Source{Name: name, About: about, Unit: "req/s", Rates: rates,
			Build: func(rate float64, seed uint64) (*Workload, error) {
				b := &maker{seed: seed, r: rng(seed, 201)}
				make(b, rate)
				w := &Workload{Name: name, Requests: order(b.rs)}
				return w, w.Check()
			}}
	}
	return []Source{
		gen("chat", "2,000 conversations of 1 to 10 turns over 20 system prompts of 2,048 tokens; questions of about 150, "+
			"answers of about 300 tokens; the next turn 15 s after the answer in the mean (closed loop)",
			[]float64{20, 40, 60}, chat),
		gen("b2b-saas",
			"150 groups, each with a system prompt of 6,000 tokens; questions of 1,200, answers of 1,000 tokens; "+
				"400 s of arrivals", []float64{2, 4, 6}, saas),
		gen("long", "200 documents of 32,768 tokens with 20 questions of 50 tokens each, 15 s apart in the mean; answers of "+
			"100 tokens", []float64{1, 2, 3}, long),
		gen("hot", "one system prompt of 4,096 tokens shared by 80% of the requests, 20% with prompts of their own of the "+
			"same length; questions of 64, answers of 128 tokens; 300 s of arrivals", []float64{20, 40, 60}, hot),
		gen("bursts", "bursts of 24 to 800 requests within 0.1 s that share 2,048 tokens, and as many requests again that "+
			"share nothing; questions and answers of 100 tokens; 300 s of arrivals", []float64{15, 30, 45}, bursts),
		gen("none", "prompts of 500 to 8,000 tokens that share nothing, answers of 50 to 350 tokens; 300 s of arrivals",
			[]float64{8, 14, 20}, nothing),
		gen("agents",
			"agent loops of 8 to 40 calls over 5 kinds of agents with 3,000 tokens of tools and instructions; each "+
				"call adds a reply of about 80 and a tool's answer of about 400 tokens, 1.5 s later in the mean (closed loop)",
			[]float64{10, 20, 30}, agents),
	}
}

// maker makes the requests of one workload.
type maker struct {
	seed uint64
	r    *rand.Rand
	rs   []Request
	next uint64
}

// fresh returns a piece that no other prompt has.
func (b *maker) fresh(tokens int) Piece {
	b.next++
	return Piece{ID: ID(b.seed, b.next, 0x6e6577), Tokens: tokens}
}

func (b *maker) freshes(n, tokens int) []Piece {
	ps := make([]Piece, n)
	for i := range ps {
		ps[i] = b.fresh(tokens)
	}
	return ps
}

// between draws from a to c, both included.
func (b *maker) between(a, c int) int { return a + b.r.IntN(c-a+1) }

// about draws from two thirds of n to four thirds.
func (b *maker) about(n int) int { return b.between(n*2/3, n*4/3) }

// exp draws a time with this mean.
func (b *maker) exp(mean time.Duration) time.Duration {
	return time.Duration(b.r.ExpFloat64() * float64(mean))
}

func (b *maker) add(r Request) int {
	r.Input = total(r.Prompt)
	b.rs = append(b.rs, r)
	return len(b.rs) - 1
}

// one adds a request that stands alone.
func (b *maker) one(at time.Duration, output int, prompt ...Piece) {
	b.add(Request{Arrival: at, After: None, Prompt: prompt, Output: output})
}

// turn is one step of a conversation.
type turn struct {
	says  Piece
	reply Piece
	think time.Duration
}

// talk adds a conversation that begins with opening.
func (b *maker) talk(at time.Duration, opening []Piece, turns []turn) {
	after := None
	session := "s" + strconv.FormatUint(ID(b.seed, uint64(len(b.rs))), 36)
	prompt := slices.Clip(slices.Clone(opening))
	for _, t := range turns {
		prompt = append(prompt, t.says)
		after = b.add(Request{
			Arrival: at, After: after, Think: t.think, Session: session,
			Prompt: prompt[:len(prompt):len(prompt)], Output: t.reply.Tokens, Reply: []Piece{t.reply},
		})
		prompt = append(prompt, t.reply)
	}
}

func chat(b *maker, rate float64) {
	const conversations = 2000
	systems := b.freshes(20, 2048)
	for _, at := range poisson(b.r, conversations, rate/5.5) {
		turns := make([]turn, b.between(1, 10))
		for i := range turns {
			turns[i] = turn{b.fresh(b.about(150)), b.fresh(b.about(300)), b.exp(15 * time.Second)}
		}
		b.talk(at, []Piece{systems[b.r.IntN(len(systems))]}, turns)
	}
}

func saas(b *maker, rate float64) {
	groups := b.freshes(150, 6000)
	for _, at := range poisson(b.r, int(math.Ceil(400*rate)), rate) {
		b.one(at, 1000, groups[b.r.IntN(len(groups))], b.fresh(1200))
	}
}

func long(b *maker, rate float64) {
	const questions = 20
	for _, at := range poisson(b.r, 200, rate/questions) {
		document := b.fresh(32768)
		for range questions {
			b.one(at, b.about(100), document, b.fresh(50))
			at += b.exp(15 * time.Second)
		}
	}
}

func hot(b *maker, rate float64) {
	system := b.fresh(4096)
	for _, at := range poisson(b.r, int(math.Ceil(300*rate)), rate) {
		s := system
		if b.r.IntN(5) == 0 {
			s = b.fresh(4096)
		}
		b.one(at, b.about(128), s, b.fresh(b.about(64)))
	}
}

func bursts(b *maker, rate float64) {
	for _, at := range poisson(b.r, int(math.Ceil(300*rate/2)), rate/2) {
		b.one(at, b.about(100), b.fresh(2048), b.fresh(100))
	}
	// Sizes are as likely between 24 and 48 as between 48 and 96.
	span := math.Log(800.0 / 24)
	mean := (800 - 24) / span
	for at := b.exp(10 * time.Second).Seconds(); at < 300; {
		n := int(24 * math.Exp(b.r.Float64()*span))
		shared := b.fresh(2048)
		for range n {
			b.one(time.Duration((at+0.1*b.r.Float64())*1e9), b.about(100), shared, b.fresh(100))
		}
		at += b.r.ExpFloat64() * mean / (rate / 2)
	}
}

func nothing(b *maker, rate float64) {
	for _, at := range poisson(b.r, int(math.Ceil(300*rate)), rate) {
		b.one(at, b.between(50, 350), b.fresh(b.between(500, 8000)))
	}
}

func agents(b *maker, rate float64) {
	kinds := b.freshes(5, 3000)
	for _, at := range poisson(b.r, 200, rate/24) {
		turns := make([]turn, b.between(8, 40))
		for i := range turns {
			says := min(8000, int(400*math.Exp(b.r.NormFloat64()-0.5))+20)
			turns[i] = turn{b.fresh(says), b.fresh(b.about(80)), b.exp(1500 * time.Millisecond)}
		}
		b.talk(at, []Piece{kinds[b.r.IntN(len(kinds))]}, turns)
	}
}

// ByArrival sorts requests that follow none.
func ByArrival(rs []Request) {
	slices.SortStableFunc(rs, func(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
}
