package loadview

// The bounds of the comparison of a member with its neighbours.
const (
	recentMax    = 64 // requests that are remembered; then half of them
	recentLeast  = 16 // requests without which nothing is compared
	recentBad    = 6  // failures of the member without which nothing is compared
	recentFactor = 4  // times the share of the others stands out
)

// recent counts how a member's last requests ended: successes and failures, as judge
// has them.
type recent struct{ good, bad uint16 }

func (r *recent) add(w verdict) {
	switch w {
	case success:
		r.good++
	case failure:
		r.bad++
	default:
		return
	}
	if r.good+r.bad >= recentMax {
		r.good, r.bad = r.good/2, r.bad/2
	}
}

// standsOut reports whether m failed at least a quarter of its last requests, and several
// times the share of its neighbours, the other members of its Views. A member that fails
// now and then has no three failures in a row.
func (p *pool) standsOut(m *member) bool {
	mine := m.recent
	n := int(mine.good) + int(mine.bad)
	if n < recentLeast || mine.bad < recentBad || int(mine.bad)*4 < n {
		return false
	}
	good, bad := 0, 0
	for _, at := range m.places {
		for _, o := range at.view.roster.Load().members {
			if o != m {
				good, bad = good+int(o.recent.good), bad+int(o.recent.bad)
			}
		}
	}
	return good+bad >= recentLeast && int(mine.bad)*(good+bad+2) >= recentFactor*(bad+1)*n
}
