package loadgen

import (
	"cmp"
	"slices"

	"github.com/warmroute/router/bench/oracle"
	"github.com/warmroute/router/internal/workload"
)

// Verdict says how well a fleet's caches were used. Shares are 0..1.
type Verdict struct {
	Requests []int // of each engine
	// Cached is the share of prompt bytes that the engine they went to had been
	// sent before, as the leading part of another prompt. An engine's own reply
	// counts only after it is sent back.
	Cached float64
	// Ideal is Cached for one engine that gets all requests in the same order and
	// forgets nothing.
	Ideal float64
	// MaxOverMean is the greatest number of requests of an engine over the mean.
	MaxOverMean float64
	// Stayed is the share of later turns that went to the engine of the turn
	// before; 1 if there are none.
	Stayed float64
	// Openings is the number of engines to which the first request of each
	// different system prompt was sent: 1 if all were sent to one.
	Openings int
}

// Judge judges the routing of sent in a fleet of the given number of engines.
func Judge(w *workload.Workload, sent []Sent, engines int) Verdict {
	texts := make([]string, len(w.Conversations)) // the last request's
	ends := make([][]int, len(w.Conversations))   // of each turn's prompt in it
	for i, c := range w.Conversations {
		var b []byte
		for j, m := range c.Messages[:len(c.Messages)-1] {
			// A message begins at the end of the last one, with its role, as in the
			// template of a model; no text contains the mark.
			b = append(b, 0, m.Role[0])
			b = append(b, m.Content...)
			if j%2 == 1 {
				ends[i] = append(ends[i], len(b))
			}
		}
		texts[i] = string(b)
	}

	byReceipt := slices.Clone(sent)
	slices.SortStableFunc(byReceipt, func(a, b Sent) int { return cmp.Compare(a.Seq, b.Seq) })
	v := Verdict{Requests: make([]int, engines)}
	caches := make([]oracle.Texts, engines)
	var one oracle.Texts
	total, cached, ideal := 0, 0, 0
	systems, openings := make(map[int]bool), make(map[int]bool)
	for _, s := range byReceipt {
		text := texts[s.Request.Conversation][:ends[s.Request.Conversation][s.Request.Turn]]
		total += len(text)
		cached += caches[s.Engine].Longest(text)
		ideal += one.Longest(text)
		caches[s.Engine].Add(text)
		one.Add(text)
		v.Requests[s.Engine]++
		if system := w.Conversations[s.Request.Conversation].System; !systems[system] {
			systems[system] = true
			openings[s.Engine] = true
		}
	}
	v.Cached, v.Ideal = share(cached, total), share(ideal, total)
	v.Openings = len(openings)
	v.MaxOverMean = share(slices.Max(v.Requests)*engines, len(sent))

	later, stayed := 0, 0
	at := make(map[int]int)
	inOrder := slices.SortedFunc(slices.Values(sent), func(a, b Sent) int { return cmp.Compare(a.Order, b.Order) })
	for _, s := range inOrder {
		if before, ok := at[s.Request.Conversation]; ok {
			later++
			if before == s.Engine {
				stayed++
			}
		}
		at[s.Request.Conversation] = s.Engine
	}
	v.Stayed = 1
	if later > 0 {
		v.Stayed = share(stayed, later)
	}
	return v
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
