package prometheus

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
)

// metric is one that is read when the page is asked for.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int
}

var watched []*metric

func read(kind prometheus.ValueType, name, help string, labels ...string) *metric {
	m := &metric{prometheus.NewDesc(namespace+"_"+name, help, labels, nil), kind, len(labels)}
	watched = append(watched, m)
	return m
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

var (
	targetsByState = read(gauge, "targets", "Targets of the fleet in a state.", "fleet", "state")
	scrapeFailing  = read(gauge, "targets_scrape_failing",
		"Targets with a metrics page that could not be read the last time.",
		"fleet")
	targetReady = read(gauge, "target_ready",
		"1 if the target is ready, else 0; for other targets, the number of ready ones.", "fleet", "target")
	targetInFlight = read(gauge, "target_in_flight",
		"Requests that this process sent to the target and has not seen finish.", "fleet", "target")
	targetQueued = read(gauge, "target_queued",
		"Further requests at the target's engine, as last reported; the mean of the others if it did not report.", "fleet",
		"target")
	targetPrefill = read(gauge, "target_prefill_tokens",
		"Tokens that this process sent to the target and that wait for prefill.", "fleet", "target")

	targetLimit = read(gauge, "target_limit",
		"Requests that the target was seen to take at once of one model and account, by its refusals; none: no limit.",
		"fleet", "target")

	adapterSlots = read(gauge, "target_adapter_slots",
		"Slots of the target for LoRA adapters, as its page reports or as is supposed; none: nothing is known.",
		"fleet", "target")
	adaptersLoaded = read(gauge, "target_adapters_loaded", "LoRA adapters that are loaded at the target, by the model.",
		"fleet", "target")
	adapterLoads = read(counter, "target_adapter_loads_total", "Loads of LoRA adapters that were seen at the target.",
		"fleet", "target")
	namesLacking = read(gauge, "target_names_lacking",
		"Models and adapters of which the target said within a minute that it does not have them.", "fleet", "target")

	eventStreams = read(gauge, "event_streams", "KV event streams in a state.", "fleet", "state")

	indexTargets = read(gauge, "index_targets", "Targets that the index knows.", "index")
	indexTrusted = read(gauge, "index_trusted_targets", "Targets with a stream that can be trusted now.", "index")
	indexBlocks  = read(gauge, "index_blocks", "Resident blocks, each once for each target that has it.", "index")
	indexOrphans = read(gauge, "index_orphan_blocks", "Blocks that came before the block they follow.", "index")
	indexRuns    = read(gauge, "index_runs", "Runs of blocks, which targets share.", "index")
	indexBatches = read(counter, "index_batches_total", "Messages that were applied.", "index")
	indexStored  = read(counter, "index_stored_blocks_total", "Blocks that engines reported as stored.", "index")
	indexRemoved = read(counter, "index_removed_blocks_total", "Blocks that engines reported as removed.", "index")
	indexEvicted = read(counter, "index_evicted_blocks_total", "Blocks that the index left out because of its bound.",
		"index")
	indexCleared = read(counter, "index_cleared_total", "Times that an engine emptied its cache.", "index")
	indexGaps    = read(counter, "index_gaps_total", "Messages that were refused because one before them was missing.",
		"index")
	indexRestarts = read(counter, "index_restarts_total", "Sequences of messages that started over.", "index")
	indexResets   = read(counter, "index_resets_total", "Times that a target's blocks were forgotten on purpose.",
		"index")
	predictions = read(counter, "index_predictions_total",
		"Finished requests with cached tokens from both the index and the engine.", "route")
	mispredictions = read(counter, "index_mispredictions_total",
		"Predictions that differ from the tokens that the engine reported.",
		"route")

	trieBytes   = read(gauge, "trie_text_bytes", "Text that is remembered; shared text counts once.", "trie")
	triePrompts = read(gauge, "trie_prompts", "Pairs of a text and a target that are remembered.", "trie")
	trieNodes   = read(gauge, "trie_nodes", "Runs of text.", "trie")
	trieEvicted = read(counter, "trie_evicted_prompts_total", "Prompts that went because of a bound.", "trie")

	lmcacheFree = read(gauge, "lmcache_free_ratio",
		"Share of the target's LMCache that is free; targets of which nothing is known have none, for other targets it is "+
			"the least.", "fleet", "target")
	lmcacheStates = read(gauge, "lmcache_caches", "LMCaches in a state.", "fleet", "state")
)

// page adds up values of equal labels: a page that has one twice is no page.
type page map[*metric]map[[3]string]float64

func (p page) add(m *metric, v float64, labels ...string) {
	var key [3]string
	copy(key[:], labels)
	if p[m] == nil {
		p[m] = make(map[[3]string]float64)
	}
	p[m][key] += v
}

// set adds a value that several sources have alike.
func (p page) set(m *metric, v float64, labels ...string) {
	var key [3]string
	copy(key[:], labels)
	delete(p[m], key)
	p.add(m, v, labels...)
}

func (p page) least(m *metric, v float64, labels ...string) {
	var key [3]string
	copy(key[:], labels)
	if old, ok := p[m][key]; ok {
		v = min(v, old)
		delete(p[m], key)
	}
	p.add(m, v, labels...)
}

// Collect is prometheus.Collector's.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	p := make(page)
	c.mu.Lock()
	for name, v := range c.views {
		c.collectFleet(p, c.fleets.Get(name), v)
	}
	for s := range c.streams {
		for _, state := range observe.StreamStates() {
			p.add(eventStreams, 0, s.fleet, state)
		}
		for _, id := range s.ids {
			p.add(eventStreams, 1, s.fleet, observe.StreamState(s.state(id)))
		}
	}
	for name, x := range c.indexes {
		s, n := x.Stats(), c.indexNames.Get(name)
		for m, v := range map[*metric]int{
			indexTargets: s.Targets, indexTrusted: s.Trusted, indexBlocks: s.Blocks, indexOrphans: s.Orphans, indexRuns: s.Nodes,
			indexBatches: s.Batches, indexStored: s.Stored, indexRemoved: s.Removed, indexEvicted: s.Evicted,
			indexCleared: s.Cleared,
			indexGaps:    s.Gaps, indexRestarts: s.Restarts, indexResets: s.Resets,
		} {
			p.add(m, float64(v), n)
		}
	}
	for name, stats := range c.precise {
		s, n := stats(), c.routes.Get(name)
		p.add(predictions, float64(s.Judged), n)
		p.add(mispredictions, float64(s.Mismatched), n)
	}
	for name, stats := range c.tries {
		s, n := stats(), c.trieNames.Get(name)
		p.add(trieBytes, float64(s.Bytes), n)
		p.add(triePrompts, float64(s.Prompts), n)
		p.add(trieNodes, float64(s.Nodes), n)
		p.add(trieEvicted, float64(s.Evicted), n)
	}
	for name, q := range c.queues {
		s, n := q.Stats(), c.queueNames.Get(name)
		p.add(queueWaiting, float64(s.Waiting), n)
		p.add(queueBytes, float64(s.Bytes), n)
	}
	for name, b := range c.memories {
		collectMemory(p, c.memoryNames.Get(name), b)
	}
	for name, s := range c.shares {
		collectShare(p, c.shareNames.Get(name), s)
	}
	for name, x := range c.splits {
		c.collectDisagg(p, c.routes.Get(name), x)
	}
	for name, l := range c.caches {
		c.collectLMCache(p, c.fleets.Get(name), l)
	}
	c.mu.Unlock()

	for _, v := range c.vecs {
		v.Collect(ch)
	}
	for m, values := range p {
		for labels, v := range values {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels[:m.labels]...)
		}
	}
}

func (c *Collector) collectFleet(p page, fleet string, v *loadview.View) {
	named := c.targets.IDs(fleet) // before the members: a target that joins meanwhile stays
	kept, members := c.kept(fleet), v.Snapshot()
	c.drop(fleet, func(id string) bool { return named[id] && !kept[id] })

	for s := router.Ready; s <= router.Asleep; s++ {
		p.add(targetsByState, 0, fleet, s.String())
	}
	p.add(scrapeFailing, 0, fleet)
	for _, s := range members {
		t := c.targets.Get(fleet, s.Target.ID)
		ready := 0.0
		if s.Target.State == router.Ready {
			ready = 1
		}
		p.add(targetsByState, 1, fleet, observe.State(s.Target.State))
		p.add(targetReady, ready, fleet, t)
		p.add(targetInFlight, float64(s.Target.Load.InFlight), fleet, t)
		p.add(targetQueued, float64(s.Target.Load.Queued), fleet, t)
		p.add(targetPrefill, float64(s.Target.Load.Prefill), fleet, t)
		if s.Limit > 0 {
			p.add(targetLimit, float64(s.Limit), fleet, t)
		}
		if a := s.Adapters; a != nil {
			p.add(adapterSlots, float64(a.Slots), fleet, t)
			p.add(adaptersLoaded, float64(a.Loaded()), fleet, t)
			p.add(adapterLoads, float64(a.Loads), fleet, t)
		}
		if len(s.Lacking) > 0 {
			p.add(namesLacking, float64(len(s.Lacking)), fleet, t)
		}
		if s.ScrapeError != nil {
			p.add(scrapeFailing, 1, fleet)
		}
	}
}

// kept returns the ids of a fleet that must keep their names: those of streams and
// of members. The caller holds c.mu.
func (c *Collector) kept(fleet string) map[string]bool {
	ids := make(map[string]bool)
	for s := range c.streams {
		if s.fleet == fleet {
			for _, id := range s.ids {
				ids[id] = true
			}
		}
	}
	for name, v := range c.views {
		if c.fleets.Get(name) == fleet {
			for _, s := range v.Snapshot() {
				ids[s.Target.ID] = true
			}
		}
	}
	return ids
}

func (c *Collector) collectLMCache(p page, fleet string, l *lmcache.Poller) {
	for s := lmcache.Unknown; s <= lmcache.Stale; s++ {
		p.add(lmcacheStates, 0, fleet, s.String())
	}
	for _, s := range l.Snapshot() {
		p.add(lmcacheStates, 1, fleet, s.State.String())
		if !math.IsNaN(s.Free) {
			p.least(lmcacheFree, s.Free, fleet, c.targets.Get(fleet, s.ID))
		}
	}
}
