package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/warmroute/router/internal/jsonscan"
)

// MaxSession is the greatest length of a session key that a request may name, in
// bytes. A longer one is no key.
const MaxSession = 512

// signals are the session keys that a body names.
type signals struct {
	userID, cacheKey, conversation, conversationID string
}

// Session headers in the order of their worth, before and after the session in
// metadata.user_id of a body.
const (
	sessionHeader = "x-session-id"
	claudeHeader  = "x-claude-code-session-id"
	agentHeader   = "x-claude-code-agent-id"
)

// laterHeader returns the i'th of the headers that come after the body's
// metadata, "" beyond the last.
func laterHeader(i int) string {
	switch i {
	case 0: // Codex's conversation; its session is the run's, which sub-agents share
		return "thread-id"
	case 1:
		return "thread_id"
	case 2:
		return "conversation_id"
	case 3:
		return "session-id"
	case 4:
		return "session_id"
	case 5:
		return "x-session-affinity"
	case 6:
		return "x-opencode-session"
	case 7:
		return "x-amp-thread-id"
	}
	return ""
}

// sessionKey returns the key of the first signal that is usable, "" for none.
func sessionKey(tenant string, h http.Header, s *signals) string {
	if k := header(h, sessionHeader); usable(k) {
		return joinKey(sessionHeader, tenant, k, "")
	}
	agent := header(h, agentHeader)
	if !usable(agent) {
		agent = ""
	}
	if k := header(h, claudeHeader); usable(k) {
		return joinKey(claudeHeader, tenant, k, agent)
	}
	if k := userSession(s.userID); usable(k) {
		return joinKey("body.metadata.user_id", tenant, k, agent)
	}
	for i := 0; laterHeader(i) != ""; i++ {
		if k := header(h, laterHeader(i)); usable(k) {
			return joinKey(laterHeader(i), tenant, k, "")
		}
	}
	switch {
	case usable(s.cacheKey):
		return joinKey("body.prompt_cache_key", tenant, s.cacheKey, "")
	case usable(s.conversation):
		return joinKey("body.conversation", tenant, s.conversation, "")
	case usable(s.conversationID):
		return joinKey("body.conversation_id", tenant, s.conversationID, "")
	}
	return ""
}

// joinKey makes one key of its parts, so that no two different ones are equal:
// "kind:length of tenant:tenant:key", or with an agent "kind/agent:length of
// tenant:tenant:length of key:key:agent". It is the same in every process.
func joinKey(kind, tenant, key, agent string) string {
	if len(tenant) > MaxSession {
		h := sha256.Sum256([]byte(tenant))
		tenant = hex.EncodeToString(h[:])
		kind += "/hashed"
	}
	if agent == "" {
		return kind + ":" + strconv.Itoa(len(tenant)) + ":" + tenant + ":" + key
	}
	return kind + "/agent:" + strconv.Itoa(len(tenant)) + ":" + tenant + ":" +
		strconv.Itoa(len(key)) + ":" + key + ":" + agent
}

// header returns a header's first value, trimmed. It finds a name that is not in
// canonical form too, as a map made by hand may have it.
func header(h http.Header, name string) string {
	if len(h) == 0 {
		return ""
	}
	v := h.Get(name)
	if v == "" {
		if vs := h[name]; len(vs) > 0 {
			v = vs[0]
		}
	}
	return strings.TrimSpace(v)
}

func usable(key string) bool {
	if key == "" || len(key) > MaxSession {
		return false
	}
	for _, r := range key {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// userSession returns the session that Claude Code writes into metadata.user_id:
// a JSON object with session_id, or user_<hex>_account_<uuid>_session_<uuid>.
// Any other value names a user, who has many conversations.
func userSession(id string) string {
	if strings.HasPrefix(strings.TrimSpace(id), "{") {
		p := parse{Scanner: jsonscan.Scanner{B: []byte(id)}, index: -1}
		s := p.strOr("session_id")
		if p.End(); p.Fault != 0 || p.soft != nil {
			return ""
		}
		return s
	}
	rest, ok := strings.CutPrefix(id, "user_")
	if !ok {
		return ""
	}
	i := strings.LastIndex(rest, "_session_")
	if i < 0 || !strings.Contains(rest[:i], "_account_") {
		return ""
	}
	if s := rest[i+len("_session_"):]; isUUID(s) {
		return s
	}
	return ""
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
			return false
		}
	}
	return true
}
