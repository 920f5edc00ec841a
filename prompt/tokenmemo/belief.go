package tokenmemo

import (
	"slices"
	"time"
)

// doubt is a count that contradicts a source's ids, by another engine than the source.
type doubt struct {
	by    string
	until time.Time
}

// Contradict drops all ids that k's source reported under its setting and believes none of it for the time of
// Quarantine: an engine counted other tokens than the ids have, and it is this source that is wrong.
func (m *Memo) Contradict(k Key) {
	if len(k.turns) == 0 {
		return
	}
	m.mu.Lock()
	m.condemn(k.as(k.source))
	m.mu.Unlock()
	if m.cfg.Contradicted != nil {
		m.cfg.Contradicted()
	}
}

// Counted takes the number of tokens that the engine by counted in the prompt of k, for which the memo had given ids
// of that length. If the numbers are not equal and by is the source of the ids, this contradicts it. Another
// engine's count may itself be wrong: it takes two such engines, within the time of Quarantine. An empty by is taken
// for the source. Counted reports whether the numbers are equal.
func (m *Memo) Counted(k Key, by string, given, counted int) bool {
	if given == counted || len(k.turns) == 0 {
		return true
	}
	told := false
	m.mu.Lock()
	at := place{at: k.whole()}
	for _, s := range slices.Clone(m.sources[at]) {
		if e := m.get(memoKey{at, s}); e == nil || e.prompt != given || k.source != "" && k.source != s {
			continue
		}
		if by == "" || by == s || m.doubt(k.as(s), by) {
			m.condemn(k.as(s))
			told = true
		}
	}
	m.mu.Unlock()
	if told && m.cfg.Contradicted != nil {
		m.cfg.Contradicted()
	}
	return false
}

// doubt notes that the engine by counted otherwise and reports whether it is the second that did.
func (m *Memo) doubt(s setting, by string) bool {
	now := m.cfg.Now()
	if d, ok := m.doubted[s]; ok && now.Before(d.until) {
		return d.by != by
	}
	if len(m.doubted) >= maxQuarantined {
		clear(m.doubted)
	}
	m.doubted[s] = doubt{by, now.Add(m.cfg.Quarantine)}
	return false
}

// Suspect reports whether no ids of k's source are believed for now under its setting.
func (m *Memo) Suspect(k Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspected(k.as(k.source))
}

// suspected reports whether a setting is in quarantine. The caller holds mu, as of
// all that follow.
func (m *Memo) suspected(s setting) bool {
	until, ok := m.suspect[s]
	if ok && !m.cfg.Now().Before(until) {
		delete(m.suspect, s)
		ok = false
	}
	return ok
}

// condemn forgets all of a setting.
func (m *Memo) condemn(s setting) {
	m.n.Contradicted++
	delete(m.doubted, s)
	for e := m.recent.Front(); e != nil; {
		next := e.Next()
		if v := e.Value.(*memoEntry); v.setting == s.of && v.key.source == s.source {
			m.remove(e)
		}
		e = next
	}
	now := m.cfg.Now()
	if len(m.suspect) >= maxQuarantined {
		var first setting
		var least time.Time
		for s, until := range m.suspect {
			if least.IsZero() || until.Before(least) {
				first, least = s, until
			}
		}
		delete(m.suspect, first)
	}
	m.suspect[s] = now.Add(m.cfg.Quarantine)
}
