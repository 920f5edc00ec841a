package otel

import (
	"errors"

	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
)

type instruments struct {
	picks, spills, fallbacks, attempts, retries, noTarget metric.Int64Counter
	judged, predicted, reported, over, under              metric.Int64Counter
	active, panics                                        metric.Int64UpDownCounter
	took, share, firstToken, speed                        metric.Float64Histogram
	usage                                                 genaiconv.ClientTokenUsage
	firstChunk                                            genaiconv.ClientOperationTimeToFirstChunk
	duration                                              genaiconv.ClientOperationDuration

	stateChanges, losses                                            metric.Int64Counter
	gaps, missing, malformed, overflows, replays, transitions       metric.Int64Counter
	lag, queueWait                                                  metric.Float64Histogram
	queueLeft, queueModels                                          metric.Int64Counter
	adapterSlots, adaptersLoaded, namesLacking                      metric.Int64ObservableGauge
	memoryUsed, memoryLimit                                         metric.Int64ObservableGauge
	memoryShed                                                      metric.Int64ObservableCounter
	queueWaiting, queueBytes, limit                                 metric.Int64ObservableGauge
	shareConnected, shareLoad, sharePeers, shareLag, shareMarks     metric.Int64ObservableGauge
	shareFrames, shareBytes, shareLosses                            metric.Int64ObservableCounter
	targetsByState, scrapeFailing, inFlight, queued, prefill        metric.Int64ObservableGauge
	streamsByState, targetsByRole                                   metric.Int64ObservableGauge
	prefills, prefillsSkipped, prefillsReused, prefillsAgain        metric.Int64ObservableCounter
	blocksLost, decodesSilent                                       metric.Int64ObservableCounter
	indexTargets, indexTrusted, indexBlocks, trieBytes, triePrompts metric.Int64ObservableGauge
	indexStored, indexRemoved, indexEvicted, trieEvicted            metric.Int64ObservableCounter
}

// conventionBounds are those that the conventions advise for durations.
var conventionBounds = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}

// maker makes instruments and keeps their errors.
type maker struct {
	m    metric.Meter
	errs []error
}

func keep[T any](k *maker, i T, err error) T {
	if err != nil {
		k.errs = append(k.errs, err)
	}
	return i
}

func (k *maker) counter(name, unit, help string) metric.Int64Counter {
	i, err := k.m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	return keep(k, i, err)
}

func (k *maker) histogram(name, unit, help string, buckets ...float64) metric.Float64Histogram {
	i, err := k.m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(buckets...))
	return keep(k, i, err)
}

func (k *maker) gauge(name, unit, help string) metric.Int64ObservableGauge {
	i, err := k.m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	return keep(k, i, err)
}

func (k *maker) total(name, unit, help string) metric.Int64ObservableCounter {
	i, err := k.m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	return keep(k, i, err)
}

func (i *instruments) make(m metric.Meter) error {
	k := &maker{m: m}
	i.picks = k.counter("warmroute.picks", "{pick}", "Targets picked, first attempts and further ones, by the reason.")
	i.spills = k.counter("warmroute.spills", "{pick}",
		"Picks that left a warm target, or a prompt's own place, because it was overloaded.")
	i.fallbacks = k.counter("warmroute.fallbacks", "{pick}",
		"Picks that a strategy could not make by the cache it is made for, by the cause.")
	i.took = k.histogram("warmroute.pick.duration", "s",
		"Time from the call to the counted choice, the wait for the fleet's lock included.",
		1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1e-2, 1e-1)
	i.share = k.histogram("warmroute.predicted_cached_ratio", "1",
		"Leading share of the prompt believed cached at the target that was picked; empty prompts have none.",
		0, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 1)
	i.firstToken = k.histogram("warmroute.time_to_first_token", "s",
		"Time from the call that asked for a target to the first token, waits and failed attempts included, by the reason.",
		observe.FirstTokenBounds...)
	i.speed = k.histogram("warmroute.output.speed", "{token}/s",
		"Output tokens a second of replies that were streamed and finished, from the first token to the end.",
		observe.SpeedBounds...)
	var err error
	i.active, err = m.Int64UpDownCounter("warmroute.attempts.active", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that were picked and have not ended."))
	keep(k, 0, err)
	i.panics, err = m.Int64UpDownCounter("warmroute.fleet.panics", metric.WithUnit("{route}"),
		metric.WithDescription("Routes in which nobody is excluded by failures, because most targets would be."))
	keep(k, 0, err)
	i.attempts = k.counter("warmroute.attempts", "{attempt}",
		"Attempts that ended, by how and by the class of the HTTP status.")
	i.retries = k.counter("warmroute.retries", "{attempt}",
		"Attempts that failed before the first token and are made again elsewhere, by the cause.")
	i.noTarget = k.counter("warmroute.no_target", "{request}", "Requests for a target that found none, by the cause.")
	i.judged = k.counter("warmroute.tokens.judged", "{token}",
		"Tokens of prompts with both predicted and reported cached tokens.")
	i.predicted = k.counter("warmroute.tokens.predicted_cached", "{token}",
		"Tokens of judged prompts that were predicted to be cached.")
	i.reported = k.counter("warmroute.tokens.reported_cached", "{token}",
		"Tokens of judged prompts that engines reported as cached.")
	i.over = k.counter("warmroute.tokens.overpredicted_cached", "{token}",
		"Tokens of judged prompts that were predicted to be cached and were not.")
	i.under = k.counter("warmroute.tokens.underpredicted_cached", "{token}",
		"Tokens of judged prompts that were cached and not predicted to be.")
	// The convention's own buckets.
	i.usage, err = genaiconv.NewClientTokenUsage(m, metric.WithExplicitBucketBoundaries(
		1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	keep(k, 0, err)
	i.firstChunk, err = genaiconv.NewClientOperationTimeToFirstChunk(m,
		metric.WithExplicitBucketBoundaries(conventionBounds...))
	keep(k, 0, err)
	i.duration, err = genaiconv.NewClientOperationDuration(m, metric.WithExplicitBucketBoundaries(conventionBounds...))
	keep(k, 0, err)

	i.stateChanges = k.counter("warmroute.target.state_changes", "{change}",
		"Changes of targets' states, by the state that was entered.")
	i.losses = k.counter("warmroute.cache.losses", "{loss}",
		"Times that a target left, restarted or was reported to have lost its cache.")
	i.targetsByState = k.gauge("warmroute.targets", "{target}", "Targets of the fleet in a state.")
	i.scrapeFailing = k.gauge("warmroute.targets.scrape_failing", "{target}",
		"Targets with a metrics page that could not be read the last time.")
	i.inFlight = k.gauge("warmroute.target.in_flight", "{request}",
		"Requests that this process sent to the target and has not seen finish.")
	i.queued = k.gauge("warmroute.target.queued", "{request}",
		"Further requests at the target's engine, as last reported; the mean of the others if it did not report.")
	i.limit = k.gauge("warmroute.target.limit", "{request}",
		"Requests that the target was seen to take at once of one model and account, by its refusals; none: no limit.")
	i.adapterSlots = k.gauge("warmroute.target.adapter_slots", "{adapter}",
		"Slots of the target for LoRA adapters, as its page reports or as is supposed; none: nothing is known.")
	i.adaptersLoaded = k.gauge("warmroute.target.adapters_loaded", "{adapter}",
		"LoRA adapters that are loaded at the target, by the model.")
	i.namesLacking = k.gauge("warmroute.target.names_lacking", "{name}",
		"Models and adapters of which the target said within a minute that it does not have them.")
	i.prefill = k.gauge("warmroute.target.prefill", "{token}",
		"Tokens that this process sent to the target and that wait for prefill.")

	i.gaps = k.counter("warmroute.event.gaps", "{gap}", "Times that messages of KV event streams were missing.")
	i.missing = k.counter("warmroute.event.missing", "{message}",
		"Messages of KV event streams that were missing when a later one came.")
	i.malformed = k.counter("warmroute.event.malformed", "{message}",
		"Messages of KV event streams that could not be read.")
	i.overflows = k.counter("warmroute.event.overflows", "{message}",
		"Messages that were dropped because the queue was full.")
	i.replays = k.counter("warmroute.event.replays", "{replay}", "Replays that were asked for.")
	i.transitions = k.counter("warmroute.event.stream.transitions", "{change}",
		"Changes of the states of KV event streams, by the state that was entered.")
	i.streamsByState = k.gauge("warmroute.event.streams", "{stream}", "KV event streams in a state.")
	i.lag = k.histogram("warmroute.event.lag", "s", "Age of live messages when they were applied, by both clocks.",
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)

	i.indexTargets = k.gauge("warmroute.index.targets", "{target}", "Targets that the index knows.")
	i.indexTrusted = k.gauge("warmroute.index.targets.trusted", "{target}",
		"Targets with a stream that can be trusted now.")
	i.indexBlocks = k.gauge("warmroute.index.blocks", "{block}", "Resident blocks, each once for each target that has it.")
	i.indexStored = k.total("warmroute.index.blocks.stored", "{block}", "Blocks that engines reported as stored.")
	i.indexRemoved = k.total("warmroute.index.blocks.removed", "{block}", "Blocks that engines reported as removed.")
	i.indexEvicted = k.total("warmroute.index.blocks.evicted", "{block}",
		"Blocks that the index left out because of its bound.")
	i.trieBytes = k.gauge("warmroute.trie.text", "By", "Text that is remembered; shared text counts once.")
	i.triePrompts = k.gauge("warmroute.trie.prompts", "{prompt}", "Pairs of a text and a target that are remembered.")
	i.trieEvicted = k.total("warmroute.trie.prompts.evicted", "{prompt}", "Prompts that went because of a bound.")

	i.queueLeft = k.counter("warmroute.queue.requests", "{request}",
		"Requests that waited for a place at a target and wait no more, by the cause and their priority.")
	i.queueModels = k.counter("warmroute.queue.model.requests", "{request}",
		"Requests that waited for a place at a target and wait no more, by the cause and their model; the first models "+
			"have a name, further ones are other.")
	i.queueWait = k.histogram("warmroute.queue.wait", "s",
		"Time that requests waited for a place at a target and got one.",
		.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	i.queueWaiting = k.gauge("warmroute.queue.waiting", "{request}", "Requests that wait for a place at a target.")
	i.queueBytes = k.gauge("warmroute.queue.prompts", "By", "Bytes of the prompts that wait.")

	i.memoryUsed = k.gauge("warmroute.memory.used", "By", "Bytes that an account of the memory budget has.")
	i.memoryLimit = k.gauge("warmroute.memory.limit", "By", "The most bytes that the account may have.")
	i.memoryShed = k.total("warmroute.memory.shed", "{reservation}", "Reservations for which the account had no bytes.")

	i.shareConnected = k.gauge("warmroute.share.connected", "1", "1 if the bus is connected.")
	i.shareLoad = k.gauge("warmroute.share.load_shared", "1", "1 if the load of other gateways counts.")
	i.sharePeers = k.gauge("warmroute.share.peers", "{gateway}", "Other gateways that are heard.")
	i.shareLag = k.gauge("warmroute.share.lag", "us",
		"Time that this gateway's own frames take to come back, of the last 256.")
	i.shareMarks = k.gauge("warmroute.share.marks", "{mark}", "Fingerprints of text that are remembered.")
	i.shareFrames = k.total("warmroute.share.frames", "{frame}",
		"Frames on the bus, by direction; the gateway's own come back.")
	i.shareBytes = k.total("warmroute.share.io", "By", "Bytes of frames on the bus, by direction.")
	i.shareLosses = k.total("warmroute.share.losses", "{loss}", "Frames and events that were lost, by the cause.")

	i.prefills = k.total("warmroute.disagg.prefills", "{prompt}",
		"Prompts computed by a prefill target, and attempts at it that failed.")
	i.prefillsSkipped = k.total("warmroute.disagg.skipped", "{request}",
		"Requests with prompts that the decode target computed too, by the reason.")
	i.prefillsReused = k.total("warmroute.disagg.reused", "{prompt}",
		"Parameters of computed prompts that were sent to a further decode target.")
	i.prefillsAgain = k.total("warmroute.disagg.again", "{prompt}",
		"Prompts that a prefill target computed once more, because their blocks were gone or may be.")
	i.blocksLost = k.total("warmroute.disagg.blocks_lost", "{prompt}",
		"Prompts computed by a prefill target that no decode target replied to (stranded), or that were kept too long "+
			"to be sent again (expired).")
	i.decodesSilent = k.total("warmroute.disagg.silent", "{request}", "Decode targets that sent no token in time.")
	i.targetsByRole = k.gauge("warmroute.disagg.targets", "{target}", "Targets of the route's fleet in a role.")
	return errors.Join(k.errs...)
}

// observed are the instruments that the callback sets.
func (i *instruments) observed() []metric.Observable {
	return []metric.Observable{
		i.targetsByState, i.scrapeFailing, i.inFlight, i.queued, i.prefill, i.streamsByState, i.indexTargets,
		i.indexTrusted, i.indexBlocks,
		i.indexStored, i.indexRemoved, i.indexEvicted, i.trieBytes, i.triePrompts, i.trieEvicted,
		i.adapterSlots, i.adaptersLoaded, i.namesLacking,
		i.queueWaiting, i.queueBytes, i.limit, i.memoryUsed, i.memoryLimit, i.memoryShed,
		i.shareConnected, i.shareLoad, i.sharePeers, i.shareLag, i.shareMarks, i.shareFrames, i.shareBytes, i.shareLosses,
		i.prefills, i.prefillsSkipped, i.prefillsReused, i.prefillsAgain, i.blocksLost, i.decodesSilent, i.targetsByRole,
	}
}
