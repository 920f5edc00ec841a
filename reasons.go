package router

import "slices"

// Reason says why a target was chosen or passed over, in snake case. "" says
// nothing: the strategy gives no reason, or is no Explainer.
type Reason string

// The reasons of the library's own strategies; Reasons returns the text of each.
// The first group is found in decisions and in the candidate that would be taken,
// the second only in candidates that would not.
const (
	ReasonWarm         Reason = "warm"            // it holds enough of the prompt
	ReasonSpill        Reason = "spill"           // a warm target was overloaded, so another took it
	ReasonCold         Reason = "cold"            // none held enough; the least loaded
	ReasonEmpty        Reason = "empty_prompt"    // nothing to match; the least loaded
	ReasonLeastLoad    Reason = "least_load"      // the least loaded
	ReasonRoundRobin   Reason = "round_robin"     // the next in order
	ReasonRandom       Reason = "random"          // drawn
	ReasonPowerOfTwo   Reason = "power_of_two"    // the less loaded of two drawn
	ReasonHash         Reason = "consistent_hash" // the place of the prompt or the session
	ReasonHashOverflow Reason = "hash_overflow"   // that place was full; the next one that was not
	ReasonAssigned     Reason = "assigned"        // another program chose
	ReasonOnly         Reason = "only_target"     // no other was left
	ReasonState        Reason = "state"           // it has the state that the request refers to

	ReasonUnhealthy  Reason = "unhealthy"    // its probes fail
	ReasonCooling    Reason = "cooling"      // it failed lately, or asked to be left alone for a while
	ReasonTripped    Reason = "tripped"      // its circuit breaker is open
	ReasonDraining   Reason = "draining"     // it finishes the requests it has and takes no new one
	ReasonFull       Reason = "full"         // it refused a request a moment ago because it has too many
	ReasonAsleep     Reason = "asleep"       // its engine sleeps and serves nothing until it is woken
	ReasonNotReady   Reason = "not_ready"    // it is in a state that this version does not know
	ReasonOverloaded Reason = "overloaded"   // warm, and too busy
	ReasonColder     Reason = "colder"       // it holds less than the one to take, or less than enough
	ReasonBusier     Reason = "busier"       // it has more to do than the one to take
	ReasonMoreWarmed Reason = "more_warmed"  // as good, but it has had more prompts than the one to take
	ReasonTied       Reason = "tied"         // as good as the one to take; the draw decides
	ReasonNotItsTurn Reason = "not_its_turn" // another one is the next in order
	ReasonElsewhere  Reason = "elsewhere"    // further along than the place of the prompt or the session
)

// ReasonText is one Reason in words.
type ReasonText struct {
	Reason Reason
	Text   string // a short phrase without a full stop
	// Chosen says that decisions have this reason; otherwise it is only one for
	// which a candidate was passed over.
	Chosen bool
}

// reasonTexts is the only list of the reasons' texts; a test holds the comments
// above to it.
var reasonTexts = [...]ReasonText{
	{ReasonWarm, "it holds enough of the prompt", true},
	{ReasonSpill, "a warm target was overloaded, so another took it", true},
	{ReasonCold, "none held enough; the least loaded", true},
	{ReasonEmpty, "nothing to match; the least loaded", true},
	{ReasonLeastLoad, "the least loaded", true},
	{ReasonRoundRobin, "the next in order", true},
	{ReasonRandom, "drawn", true},
	{ReasonPowerOfTwo, "the less loaded of two drawn", true},
	{ReasonHash, "the place of the prompt or the session", true},
	{ReasonHashOverflow, "that place was full; the next one that was not", true},
	{ReasonAssigned, "another program chose", true},
	{ReasonOnly, "no other was left", true},
	{ReasonState, "it has the state that the request refers to", true},
	{ReasonUnhealthy, "its probes fail", false},
	{ReasonCooling, "it failed lately, or asked to be left alone for a while", false},
	{ReasonTripped, "its circuit breaker is open", false},
	{ReasonDraining, "it finishes the requests it has and takes no new one", false},
	{ReasonFull, "it refused a request a moment ago because it has too many", false},
	{ReasonAsleep, "its engine sleeps and serves nothing until it is woken", false},
	{ReasonNotReady, "it is in a state that this version does not know", false},
	{ReasonOverloaded, "warm, and too busy", false},
	{ReasonColder, "it holds less than the one to take, or less than enough", false},
	{ReasonBusier, "it has more to do than the one to take", false},
	{ReasonMoreWarmed, "as good, but it has had more prompts than the one to take", false},
	{ReasonTied, "as good as the one to take; the draw decides", false},
	{ReasonNotItsTurn, "another one is the next in order", false},
	{ReasonElsewhere, "further along than the place of the prompt or the session", false},
}

// Reasons returns every reason of the library's own strategies in words, for pages
// and logs, first those of decisions; precisecacheaware adds some of its own. The
// slice is the caller's.
func Reasons() []ReasonText { return slices.Clone(reasonTexts[:]) }

// ReasonOf returns the reason for which a target in state s is passed over, ""
// for Ready.
func ReasonOf(s State) Reason {
	switch s {
	case Ready:
		return ""
	case Unhealthy:
		return ReasonUnhealthy
	case Cooling:
		return ReasonCooling
	case Tripped:
		return ReasonTripped
	case Draining:
		return ReasonDraining
	case Full:
		return ReasonFull
	case Asleep:
		return ReasonAsleep
	}
	return ReasonNotReady
}
