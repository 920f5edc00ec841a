package zmqsub

import "strconv"

// State is the state of a target's stream.
type State uint8

const (
	// Cold: nothing has been applied, so the target is not trusted.
	Cold State = iota
	// Partial: all messages since some message have been applied, earlier ones are
	// not known. The target is trusted; it holds at least the blocks that the index
	// says.
	Partial
	// Live: all messages since the engine's first have been applied.
	Live
	// Resyncing: messages may be missing and the engine has been asked for them.
	// The target is not trusted.
	Resyncing
	// Down: the connection is lost. A target that was trusted is trusted for
	// Config.StaleAfter.
	Down
)

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state_" + strconv.Itoa(int(s))
}

var stateNames = [...]string{"cold", "partial", "live", "resyncing", "down"}
