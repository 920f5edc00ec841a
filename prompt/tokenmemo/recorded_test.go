package tokenmemo

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/shareddata"
)

// TestMemoRecorded plays what was asked of real engines, of every version:
// no answer is wrong, an exact repeat is known whole, and the third and fourth
// prompts of the recorded chats begin with known ids.
func TestMemoRecorded(t *testing.T) {
	t.Run("here", func(t *testing.T) { recorded(t, filepath.Join("..", "testdata", "vllm"), 36) })
	t.Run("beside the checkout", func(t *testing.T) { recorded(t, shareddata.Path(t, "vllm_live"), 54) })
}

func recorded(t *testing.T, folder string, least int) {
	files, err := filepath.Glob(filepath.Join(folder, "v*", "*.requests.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	chats := 0
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m := newMemo(t, Config{})
		multi := strings.Contains(file, "multi_turn_chat")
		wholes, prefixes, asked := 0, 0, 0
		sc := bufio.NewScanner(f)
		for sc.Buffer(nil, 64<<20); sc.Scan(); {
			var r struct {
				Kind, Path string
				Body       json.RawMessage
				Prompt     []uint32        `json:"prompt_token_ids"`
				Output     json.RawMessage `json:"output_token_ids"`
				Finish     any             `json:"finish_reason"`
			}
			if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if r.Kind != "request" || len(r.Prompt) == 0 || !strings.HasSuffix(r.Path, "/chat/completions") {
				continue
			}
			k, ok := NewKey(r.Path, r.Body)
			if !ok {
				t.Errorf("%s: no key for %s", file, r.Body)
				continue
			}
			asked++
			chats++
			ids, whole := m.Tokens(k)
			if whole && !slices.Equal(ids, r.Prompt) || len(ids) > len(r.Prompt) || !slices.Equal(ids, r.Prompt[:len(ids)]) {
				t.Errorf("%s: %v, truth %v", file, ids, r.Prompt)
			}
			switch {
			case whole:
				wholes++
			case ids != nil:
				prefixes++
				if multi && len(ids)*2 < len(r.Prompt) {
					t.Errorf("%s: only %d of %d", file, len(ids), len(r.Prompt))
				}
			}
			var output []uint32
			if r.Finish == "stop" {
				_ = json.Unmarshal(r.Output, &output) // a list of lists if there were several choices
			}
			m.Learn(k, r.Prompt, output)
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Contradicted != 0 {
			t.Errorf("%s: %+v", file, s)
		}
		// Two of the four chats begin alike; the last two requests are repeats.
		if multi && (asked != 18 || wholes != 3 || prefixes != 9) {
			t.Errorf("%s: of %d, %d whole, %d prefixes", file, asked, wholes, prefixes)
		}
	}
	if chats < least {
		t.Errorf("only %d chats were found", chats)
	}
}
