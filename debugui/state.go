package debugui

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/loadview"
)

// state is the page's news.
type state struct {
	Title   string `json:"title"`
	Now     int64  `json:"now"` // Unix milliseconds
	Prompts bool   `json:"prompts"`
	SpanMS  int64  `json:"spanMs"`

	Routes   []string `json:"routes"`
	Route    string   `json:"route"`
	Strategy string   `json:"strategy"`
	Model    string   `json:"model"`
	CanTry   bool     `json:"canTry"`
	HasView  bool     `json:"hasView"`
	HasIndex bool     `json:"hasIndex"`
	HasWarm  bool     `json:"hasWarmed"`

	// Books says that the strategy keeps books of cached prompts; otherwise the shares are not known.
	Books bool        `json:"books"`
	First firstState  `json:"first"`
	Story *storyState `json:"story"` // nil: there is none

	Totals totals  `json:"totals"`
	Rate   float64 `json:"rate"`   // picks a second, lately
	Share  int     `json:"share"`  // cached, in thousandths, over the time that is shown; -1: unknown
	Series []int   `json:"series"` // the same for each span
	Picks  []int   `json:"picks"`  // for each span

	Sizes     []string       `json:"sizes"`
	Targets   []targetState  `json:"targets"`
	Matching  int            `json:"matching"` // targets, before the bound
	States    map[string]int `json:"states"`   // of all targets
	Queued    int            `json:"queued"`
	Waiting   int            `json:"waiting"` // in the line; -1: there is none
	WaitingKB int64          `json:"waitingKB"`
	Shed      uint64         `json:"shed"`
	Shared    *sharedState   `json:"shared"` // nil: nothing is shared
	Splits    *splitState    `json:"splits"` // nil: prefill and decode are not apart
	Memory    *memoryState   `json:"memory"` // nil: there is no budget
	Streams   []streamState  `json:"streams"`
	StreamsOf int            `json:"streamsOf"`
	Decisions []brief        `json:"decisions"`
	Events    []event        `json:"events"`
}

type targetState struct {
	ID       string    `json:"id"`
	State    string    `json:"state"`
	ReadyMS  int64     `json:"readyMs"`
	Failures int       `json:"failures"`
	Weight   float64   `json:"weight"`
	Known    bool      `json:"known"`
	InFlight int       `json:"inFlight"`
	Queued   int       `json:"queued"`
	QueuedMS int64     `json:"queuedMs"` // age of the report; -1: none
	Prefill  int       `json:"prefill"`
	Limit    int       `json:"limit"`    // of requests in flight, seen at refusals; 0: none
	Slots    int       `json:"slots"`    // for adapters; 0: nothing is known
	Loads    uint64    `json:"loads"`    // of adapters
	Adapters []string  `json:"adapters"` // loaded, the latest used first; 8 at most
	Lacking  []string  `json:"lacking"`  // names of models and adapters; 8 at most
	Picks    uint64    `json:"picks"`
	Share    int       `json:"share"`
	Series   []int     `json:"series"`
	BySize   [][2]int  `json:"bySize"` // picks and share
	Warmed   int       `json:"warmed"`
	Blocks   int       `json:"blocks"`
	Trusted  bool      `json:"trusted"`
	Role     string    `json:"role"` // "": prefill and decode are not apart
	load     float64   // to sort by
	id       string    // as it is
	flow     perTarget // a copy
}

type streamState struct {
	Target    string `json:"target"`
	State     string `json:"state"`
	Trusted   bool   `json:"trusted"`
	Messages  uint64 `json:"messages"`
	Gaps      uint64 `json:"gaps"`
	Replays   uint64 `json:"replays"`
	Malformed uint64 `json:"malformed"`
	Overflows uint64 `json:"overflows"`
}

// brief is a decision without its candidates.
type brief struct {
	Seq      uint64 `json:"seq"`
	At       int64  `json:"at"`
	Target   string `json:"target"`
	Model    string `json:"model"`
	Reason   string `json:"reason"`
	Spill    bool   `json:"spill"`
	Cached   int    `json:"cached"`
	Length   int    `json:"length"`
	Unit     string `json:"unit"`
	InFlight int    `json:"inFlight"`
	Queued   int    `json:"queued"`
	Attempt  int    `json:"attempt"`
	TookUS   int64  `json:"tookUs"`
	Stage    string `json:"stage"`
	Status   int    `json:"status"`
	FirstMS  int64  `json:"firstMs"`
	WholeMS  int64  `json:"wholeMs"`
	Prompts  int    `json:"promptTokens"`
	Hits     int    `json:"cachedTokens"`
	Of       int    `json:"of"` // candidates
}

func (d *decision) brief() brief {
	return brief{
		Seq: d.seq, At: d.at.UnixMilli(), Target: shown(d.target), Model: d.model, Reason: d.reason, Spill: d.spill,
		Cached: d.cached, Length: d.length, Unit: d.unit.String(), InFlight: d.load.InFlight, Queued: d.load.Queued,
		Attempt: d.attempt, TookUS: d.took.Microseconds(), Stage: d.stage, Status: d.status,
		FirstMS: d.first.Milliseconds(), WholeMS: d.whole.Milliseconds(), Prompts: d.prompts, Hits: d.hits, Of: d.of,
	}
}

// sources returns the watched sources and the model of the last prompt.
func (r *route) sources() (Route, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched, r.model
}

func (p *Page) serveState(w http.ResponseWriter, req *http.Request) {
	if !enter(w, p.reading) {
		return
	}
	defer func() { <-p.reading }()
	now := time.Now()
	p.asked.Store(now.UnixNano())
	q := req.URL.Query()
	s := state{
		Title: p.cfg.Title, Now: now.UnixMilli(), Prompts: p.cfg.ShowPrompts, SpanMS: span.Milliseconds(), Share: -1,
		Sizes: sizeNames[:], Routes: []string{}, Series: []int{}, Picks: []int{}, Targets: []targetState{},
		States: map[string]int{}, Waiting: -1, Streams: []streamState{}, Decisions: []brief{}, Events: []event{},
	}
	s.Story, s.First = p.story.Load(), firstState{-1, -1, -1}
	r := p.list(&s, q.Get("route"))
	if r != nil {
		r.fill(&s, now, q.Get("show"), strings.ToLower(clip(q.Get("find"), 200)))
	}
	reply(w, s)
}

// list fills in the data common to all routes and returns the route to show,
// nil if there is none.
func (p *Page) list(s *state, name string) (chosen *route) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	chosen = p.first
	for _, r := range p.routes {
		s.Routes = append(s.Routes, r.name)
		if chosen == nil || r.name == name && name != "" {
			chosen = r
		}
	}
	p.events.newest(func(e event) bool {
		s.Events = append(s.Events, e)
		return len(s.Events) < maxRows
	})
	return chosen
}

func (r *route) fill(s *state, now time.Time, show, find string) {
	watched, model := r.sources()
	s.Route, s.Strategy, s.Model = r.name, watched.Strategy, model
	s.CanTry, s.HasView, s.HasIndex, s.HasWarm = watched.Router != nil, watched.View != nil, watched.Index != nil,
		watched.Warmed != nil
	// Without the route's lock: it is the caller's code.
	var members []loadview.Status
	if watched.View != nil {
		members = watched.View.Snapshot()
	}
	for i := range members {
		t := &members[i].Target
		s.States[t.State.String()]++
		s.Queued += t.Load.Queued
		if find == "" || strings.Contains(strings.ToLower(shown(t.ID)), find) {
			m := member(&members[i])
			if watched.Disagg != nil {
				m.Role = clip(string(watched.Disagg.Place(*t).Role), 40)
			}
			s.Targets = append(s.Targets, m)
		}
	}
	s.Matching = len(s.Targets)
	if len(s.Targets) > maxRows { // those that one would look for
		slices.SortStableFunc(s.Targets, func(a, b targetState) int {
			return cmp.Or(ready(a)-ready(b), cmp.Compare(b.load, a.load))
		})
		s.Targets = s.Targets[:maxRows]
	}
	r.numbers(s, now, show)
	if s.Books = !bookless[watched.Strategy]; !s.Books {
		s.forgetShares()
	}
	r.sourcesOf(s, watched)
}

func ready(t targetState) int {
	if t.State == router.Ready.String() {
		return 1
	}
	return 0
}

func member(m *loadview.Status) targetState {
	t := &m.Target
	v := targetState{
		ID: shown(t.ID), id: t.ID, State: t.State.String(), ReadyMS: m.ReadyIn.Milliseconds(), Failures: m.Failures,
		Weight: t.Weight, Known: t.Load.Known, InFlight: t.Load.InFlight, Queued: t.Load.Queued, QueuedMS: -1,
		Prefill: t.Load.Prefill, Limit: m.Limit,
		Share: -1, Series: []int{}, BySize: [][2]int{}, Adapters: []string{}, Lacking: []string{},
	}
	if !(v.Weight > 0) { // NaN has no JSON
		v.Weight = 1
	}
	if a := m.Adapters; a != nil {
		v.Slots, v.Loads = a.Slots, a.Loads
		for _, x := range a.Adapters {
			if x.Loaded && len(v.Adapters) < 8 {
				v.Adapters = append(v.Adapters, clip(x.Name, 64))
			}
		}
	}
	for _, name := range m.Lacking[:min(len(m.Lacking), 8)] {
		v.Lacking = append(v.Lacking, clip(name, 64))
	}
	if m.QueuedKnown {
		v.QueuedMS = m.QueuedAge.Milliseconds()
	}
	v.load = float64(t.Load.InFlight+t.Load.Queued) / v.Weight
	return v
}

// numbers fills in the counts of the hooks.
func (r *route) numbers(s *state, now time.Time, show string) {
	at := clock(now)
	var whole series
	copied := make([]bool, len(s.Targets))
	r.mu.Lock()
	s.Totals, whole = r.totals, r.whole
	for i := range s.Targets {
		if e, ok := r.targets[s.Targets[i].id]; ok {
			s.Targets[i].flow, copied[i] = *e.Value.(*perTarget), true
		}
	}
	from := &r.all
	if show == "notable" {
		from = &r.notable
	}
	from.newest(func(d *decision) bool {
		if show != "spills" || d.spill {
			s.Decisions = append(s.Decisions, d.brief())
		}
		return len(s.Decisions) < maxRows/2
	})
	s.First = r.first.state()
	r.mu.Unlock()

	s.Share = whole.total(at, spans).share()
	const few = 5
	lately := whole.total(at-1, few) // the newest span is not over
	s.Rate = float64(lately.picks) / (few * span.Seconds())
	whole.each(at, func(f flow) {
		s.Series = append(s.Series, f.share())
		s.Picks = append(s.Picks, int(f.picks))
	})
	for i := range s.Targets {
		t := &s.Targets[i]
		if !copied[i] {
			continue
		}
		t.Picks = t.flow.picks
		t.Share = t.flow.total(at, spans).share()
		t.Series = make([]int, 0, spans)
		t.flow.each(at, func(f flow) { t.Series = append(t.Series, f.share()) })
		b := t.flow.bySize
		b.at(at)
		t.BySize = make([][2]int, sizes)
		for j := range b.now {
			f := b.now[j]
			f.sum(b.old[j])
			t.BySize[j] = [2]int{int(f.picks), f.share()}
		}
	}
}

// sourcesOf fills in the data of the index, the strategy's memory and the streams.
func (r *route) sourcesOf(s *state, w Route) {
	if w.Warmed != nil && len(s.Targets) > 0 {
		ids := make([]string, len(s.Targets))
		for i := range s.Targets {
			ids[i] = s.Targets[i].id
		}
		for i, n := range w.Warmed(ids, nil) {
			if i < len(s.Targets) {
				s.Targets[i].Warmed = n
			}
		}
	}
	if w.Index != nil {
		for i := range s.Targets {
			if t, ok := w.Index.Target(s.Targets[i].id); ok {
				s.Targets[i].Blocks, s.Targets[i].Trusted = t.Blocks, t.Trusted
			}
		}
	}
	if w.Queue != nil {
		q := w.Queue.Stats()
		s.Waiting, s.WaitingKB = q.Waiting, q.Bytes>>10
		for _, cause := range []string{admission.TooLong, admission.TooMany, admission.TooLarge} {
			s.Shed += q.Left[cause]
		}
	}
	if w.Share != nil {
		s.Shared = sharedOf(w.Share.State())
	}
	if w.Disagg != nil {
		s.Splits = splitsOf(w.Disagg.Stats())
	}
	if w.Memory != nil {
		s.Memory = memoryOf(w.Memory.Stats())
	}
	if w.Streams != nil {
		all := w.Streams()
		s.StreamsOf = len(all)
		for _, x := range all[:min(len(all), maxRows)] {
			s.Streams = append(s.Streams, streamState{
				shown(x.Target), clip(x.State, 40), x.Trusted, x.Messages, x.Gaps, x.Replays, x.Malformed, x.Overflows,
			})
		}
	}
}

// detail is the data of a decision.
type detail struct {
	Candidates []candidate `json:"candidates"`
	Of         int         `json:"of"`
	Prompt     string      `json:"prompt"`
}

func (p *Page) serveDecision(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	seq, err := strconv.ParseUint(q.Get("seq"), 10, 64)
	r := p.find(q.Get("route"))
	if err != nil || r == nil {
		fail(w, http.StatusNotFound, "no such decision")
		return
	}
	var out *detail
	look := func(d *decision) bool {
		if d.seq == seq {
			out = &detail{append([]candidate{}, d.cands...), d.of, d.prompt}
		}
		return out == nil
	}
	r.mu.Lock()
	r.all.newest(look)
	if out == nil {
		r.notable.newest(look)
	}
	r.mu.Unlock()
	if out == nil {
		fail(w, http.StatusNotFound, "not kept any more")
		return
	}
	reply(w, out)
}
