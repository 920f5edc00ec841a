// Package loadview is the fleet as this process sees it: its members, the requests
// that this process has in flight on each, and whether each may be picked.
//
// A [View] is a [router.Fleet]. [View.Set] replaces its members, [View.Put] and
// [View.Remove] change one. [View.Choose] lets a strategy choose among them and
// counts the choice in the same step. The [router.Flight] that Choose returns takes
// the request off the counters and reports how it went, from which the View learns
// which members to leave alone for a while.
//
// Counters and health are apart: a health change never touches a counter, and
// only the request's own end takes it off its counter, however long it lives.
//
// # Where to find things
//
//	config.go     Config, its parts, its defaults and its errors
//	view.go       View: its members, Set, Put, Remove; several Views over one pool
//	member.go     Member, and the record of one
//	choose.go     Choose and the life of a counted request
//	health.go     the effect of an outcome on a member: cool-down, breaker, Retry-After
//	panic.go      no member is excluded if most would be
//	limits.go     the limits of a full member, by model and account
//	queue.go      the engines' own queues: SetQueued, and the mean for unknown ones
//	notify.go     StateChanged, Changed and OnForget
//	run.go        Run: one goroutine for each page and each probe
//	scrape.go     a page's numbers become a member's queue, and show a restart
//	probe.go      probes make a member Unhealthy; slowstart.go: how it comes back
//	snapshot.go   Snapshot and Status
//	enginepage/   the engines' pages: their names, and how they are read
//
// # The effect of a failure
//
// A request that Finished is a success. One that Failed in a way that another
// target might have answered ([router.Outcome.Retryable]: no status, 408, 429 or
// 5xx) is a failure. All else (Canceled; a 404 or another 4xx of the client's
// own making) is neither and changes nothing.
//
//   - [Config.CoolAfter] failures in a row cool a member down: it is
//     [router.Cooling] for CoolBase. After that it is Ready again and on trial:
//     the next failure cools it for twice as long, up to CoolMax. One success
//     of a request that was sent after the first failure in the row clears the
//     count, the doubling and a cool-down under way; older ones show the time
//     before. A crash fails everything in flight at once, which is one event:
//     failures during a cool-down, and later those of requests that were sent
//     before it ended, do not count.
//   - A 429, a 503 and a 529 mean that the member is alive and full: that is no
//     failure. The requests of the same model and account ([router.Prompt].Account)
//     that it had in flight then are the limit of these for [Config.FullFor], or for
//     as long as its Retry-After says. While it has as many, it is [router.Full] for
//     them, and for no other requests ([View.ChoosePrompt]). The first of them that
//     ends frees it, and its successes raise the limit again. Without a Retry-After
//     the limit is at least one, after a pause of 100 ms if it had none in flight. If
//     no member is Ready, one request is tried at a time, with a Retry-After once each
//     FullFor and first after these 100 ms,
//     whatever a Retry-After says; its first token ends the limit. See FullFor to turn
//     all of that off.
//   - A 5xx to a text that failed with a 5xx on another member less than 30 s before
//     speaks of the request. Nobody is blamed for it any more, and the blame of the
//     other one is taken back, unless a member serves it after all. But if four
//     different texts in a row fail like this on a member that serves none, it is
//     the member, or the world. A prompt without a text is known by its tokens.
//   - A time-out after the request was sent is no failure of a member that answered
//     another request meanwhile: that request takes long. Nor is a probe that times
//     out, while the member answers requests.
//   - Another Retry-After is the member's own wish. It is obeyed from the
//     first time, for as long as it says up to RetryAfterMax, without doubling,
//     and to its end: a success does not cut it short, because replies that were
//     under way finish while the member turns new ones down. The reply is a failure
//     too.
//   - If failures and probes would exclude more than [Config.PanicThreshold] of a
//     View's members, the View panics: it excludes none.
//   - With [Config.Breaker], BreakerFailures failures in a row make a member
//     [router.Tripped] for BreakerOpen. Then it is half-open: offered as Ready
//     until one Choose takes it, and Tripped to everybody else until that request
//     has its first token or has ended. Its success, of which the first token is
//     enough, closes the breaker, its failure opens it for another BreakerOpen,
//     and if it was neither the next request tries. Looking (a
//     Snapshot, or a Choose that takes another member or none) uses nothing up.
//     Other requests that reach the member meanwhile, because somebody else chose
//     for them, decide nothing.
//
// # The engines' reports
//
// [View.Run] reads the metrics page of each member that has a Member.Metrics and
// probes those with a Member.Health. From the page comes Load.Queued: the requests
// that the engine has beyond those that this process sent, so gateways over one
// fleet see each other. It is as old as the page, so it helps when requests last
// longer than Scrape.Interval; engines that count only now and then (SGLang, every
// so many steps) make it older still. [View.Engine] has the rest, for filters.
//
// # Several Views over one pool
//
// A process with several endpoints over the same replicas, or one that builds its
// endpoints again at each reload, makes one View with New and the others with
// [View.Share]. Each has its own members, with weights and Refs of its own; a
// member that several have, by its ID, is one: one counter, one health, one scrape.
// Choosing and counting are one step across all of them.
package loadview
