package observe

import "github.com/warmroute/router/share"

// ShareLoss counts losses of one cause.
type ShareLoss struct {
	Cause string
	N     uint64
}

// ShareLosses returns the losses of a shared view by their cause: "refused" are frames that the bus did not take,
// "bus" those that it dropped, "bad" those that could not be read, "missing" the times that frames of another gateway
// were lost, and "too_fast" the events that came faster than they could be published.
func ShareLosses(s share.State) []ShareLoss {
	return []ShareLoss{
		{"refused", s.Failed}, {"bus", s.Bus.Dropped}, {"bad", s.Bad}, {"missing", s.Lost}, {"too_fast", s.Dropped},
	}
}
