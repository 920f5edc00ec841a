package kvindex_test

import (
	"slices"
	"testing"

	"github.com/warmroute/router/kvindex"
)

// Trace.Adapter reports the adapters with which a target has computed blocks.
func TestTraceAdapter(t *testing.T) {
	var got []string
	x, err := kvindex.New(kvindex.Config{Trace: kvindex.Trace{Adapter: func(id, adapter string) {
		got = append(got, id+" "+adapter)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	block := func(hash uint64, adapter string) kvindex.Event {
		return kvindex.Event{
			Kind: kvindex.Stored, Hashes: []uint64{hash}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 4,
			Adapter: adapter,
		}
	}
	err = x.Apply("vllm-1", 1, kvindex.Batch{Events: []kvindex.Event{
		block(1, ""), block(2, "sql"), block(3, "sql"), block(4, "chat"), block(5, "id:1"),
		{Kind: kvindex.Removed, Adapter: "none"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"vllm-1 sql", "vllm-1 chat"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
