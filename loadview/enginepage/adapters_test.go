package enginepage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router/loadview/enginepage"
)

// vllmAdapters is what vLLM 0.32 writes after three states: each set of labels stays, with its time.
const vllmAdapters = `# HELP vllm:lora_requests_info Running stats on lora requests.
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7906e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="code"} 1.790600002e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 1.790600001e+09
`

func TestAdapters(t *testing.T) {
	table := enginepage.NewTable(enginepage.Dialects())
	for _, c := range []struct {
		page string
		want *enginepage.Adapters
	}{
		{"vllm:num_requests_running 1\n", nil},
		{vllmAdapters, &enginepage.Adapters{Slots: 4, Running: []string{"sql", "chat"}, Waiting: []string{"code"}}},
		{`vllm:lora_requests_info{max_lora="x",running_lora_adapters=" a, b ,,"} 1` + "\n",
			&enginepage.Adapters{Running: []string{"a", "b"}}},
		{`vllm:lora_adapter_loaded{adapter_name="a",level="gpu",pinned="false"} 1
vllm:lora_adapter_loaded{adapter_name="b",level="cpu",pinned="false"} 1
vllm:lora_adapter_loaded{adapter_name="c",level="gpu",pinned="true"} 0
vllm:lora_adapter_loaded{adapter_name="d"} 1
`, &enginepage.Adapters{Loaded: []string{"a", "d"}, Exact: true}},
	} {
		p, err := new(enginepage.Reader).Read(strings.NewReader(c.page), table, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, p.Adapters()); d != "" {
			t.Errorf("%s: %s", c.page, d)
		}
	}
}

func ExamplePage_Adapters() {
	page, err := new(enginepage.Reader).Read(strings.NewReader(vllmAdapters),
		enginepage.NewTable(enginepage.Dialects()), 1<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	a := page.Adapters()
	fmt.Println(a.Slots, a.Running, a.Waiting, a.Exact)
	// Output: 4 [sql chat] [code] false
}
