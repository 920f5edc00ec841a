package vllmtest

import "strconv"

// tokenIDs are the ids that a reply returns if return_token_ids asks for them.
// A nil one writes nothing.
type tokenIDs struct {
	prompts [][]uint32
	outputs [][]uint32 // of a reply that is not streamed
	now     []uint32   // of a stream: produced and not written
	begun   int        // choices with a written prompt
}

// produced notes tokens i..j-1 of a choice, to be written with the next ones.
func (t *tokenIDs) produced(r *reply, i, j int) {
	if t == nil {
		return
	}
	for ; i < j; i++ {
		t.now = append(t.now, r.token(i))
	}
}

// whole notes the n tokens of the next choice.
func (t *tokenIDs) whole(r *reply, n int) {
	if t == nil {
		return
	}
	var ids []uint32
	for i := range n {
		ids = append(ids, r.token(i))
	}
	t.outputs = append(t.outputs, ids)
}

// prompt writes the ids of prompt i as a further member.
func (t *tokenIDs) prompt(b []byte, i int) []byte {
	if t == nil {
		return b
	}
	return appendIDs(append(b, `,"prompt_token_ids":`...), t.prompts[i])
}

// output writes the ids of choice i as a further member.
func (t *tokenIDs) output(b []byte, i int) []byte {
	if t == nil {
		return b
	}
	return appendIDs(append(b, `,"token_ids":`...), t.outputs[i])
}

// piece writes those of a piece of a stream, and a completion's prompt with the
// first one of its choice. A chat's prompt stands in the head of its stream.
func (t *tokenIDs) piece(b []byte, index int, chat bool) []byte {
	if t == nil {
		return b
	}
	if !chat && index == t.begun {
		b = t.prompt(b, index)
		t.begun++
	}
	b = appendIDs(append(b, `,"token_ids":`...), t.now)
	t.now = t.now[:0]
	return b
}

func appendIDs(b []byte, ids []uint32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, ']')
}
