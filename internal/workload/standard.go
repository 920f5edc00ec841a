package workload

import "cmp"

// ChatConfig describes chats over shared system prompts. The zero value is the
// standard workload chat: 11,000 requests, 14.2 KB of content in the mean and
// 17.6 MB of distinct content in all.
type ChatConfig struct {
	Seed          uint64 // 0 is a seed like any other
	Conversations int    // 0 means 2,000
	Systems       int    // system prompts; 0 means 20
	SystemBytes   int    // of each system prompt; 0 means 8,192
	// Opening is the number of leading bytes that all system prompts share. 0, the
	// standard: they differ from the start.
	Opening int
	// Turns is the greatest number of turns; conversations have 1 to Turns, each
	// number equally often. 0 means 10.
	Turns int
	// UserBytes and AssistantBytes are the mean sizes of messages; the sizes are
	// drawn from two thirds of it to four thirds. 0 means 600 and 1,200.
	UserBytes, AssistantBytes int
}

// Chat returns the workload that c describes.
func Chat(c ChatConfig) *Workload {
	c.Conversations = cmp.Or(c.Conversations, 2000)
	c.Systems = cmp.Or(c.Systems, 20)
	c.SystemBytes = cmp.Or(c.SystemBytes, 8192)
	c.Turns = cmp.Or(c.Turns, 10)
	c.UserBytes = cmp.Or(c.UserBytes, 600)
	c.AssistantBytes = cmp.Or(c.AssistantBytes, 1200)

	text := &writer{r: newRand(c.Seed, 1), words: vocabulary(newRand(c.Seed, 2))}
	opening := text.text(c.Opening)
	systems := make([]string, c.Systems)
	for i := range systems {
		systems[i] = opening + text.text(c.SystemBytes-c.Opening)
	}
	draw := newRand(c.Seed, 3)
	turns := spread(draw, c.Conversations, c.Turns)
	// Each system prompt gets its share of conversations of every length.
	owner := spread(draw, c.Conversations, c.Systems)
	w := &Workload{Name: "chat", Model: "bench"}
	for i := range c.Conversations {
		m := make([]Message, 0, 1+2*turns[i])
		m = append(m, Message{"system", systems[owner[i]-1]})
		for range turns[i] {
			m = append(m,
				Message{"user", text.text(between(draw, c.UserBytes*2/3, c.UserBytes*4/3))},
				Message{"assistant", text.text(between(draw, c.AssistantBytes*2/3, c.AssistantBytes*4/3))})
		}
		w.Conversations = append(w.Conversations, newConversation(owner[i]-1, m))
	}
	w.Requests = interleave(newRand(c.Seed, 4), w.Conversations)
	return w
}

// LongConfig describes questions about long documents. The zero value is the
// standard workload long: 4,000 requests, 131,272 bytes of content each.
type LongConfig struct {
	Seed          uint64
	Documents     int // 0 means 200
	DocumentBytes int // 0 means 131,072
	Questions     int // about each document; 0 means 20
	QuestionBytes int // 0 means 200
}

// Long returns the workload that c describes. Each question is a conversation of
// its own with the document as its system prompt.
func Long(c LongConfig) *Workload {
	c.Documents = cmp.Or(c.Documents, 200)
	c.DocumentBytes = cmp.Or(c.DocumentBytes, 128<<10)
	c.Questions = cmp.Or(c.Questions, 20)
	c.QuestionBytes = cmp.Or(c.QuestionBytes, 200)

	text := &writer{r: newRand(c.Seed, 11), words: vocabulary(newRand(c.Seed, 2))}
	w := &Workload{Name: "long", Model: "bench"}
	for d := range c.Documents {
		document := Message{"system", text.text(c.DocumentBytes)}
		encoded := appendJSON(nil, document) // once for all questions
		for range c.Questions {
			w.Conversations = append(w.Conversations, &Conversation{
				System:   d,
				Messages: []Message{document, {"user", text.text(c.QuestionBytes)}, {"assistant", text.text(c.QuestionBytes)}},
			})
			conv := w.Conversations[len(w.Conversations)-1]
			conv.encoded = [][]byte{encoded, appendJSON(nil, conv.Messages[1]), appendJSON(nil, conv.Messages[2])}
		}
	}
	w.Requests = interleave(newRand(c.Seed, 14), w.Conversations)
	return w
}
