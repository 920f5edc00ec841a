package prompt_test

import (
	"net/http"
	"testing"

	"github.com/warmroute/router/prompt"
)

// An error that says that the model or the adapter is not there may be answered by another target; errors about
// other things, which name the model too, may not.
func TestUnknownModel(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   bool
	}{
		{404, `{"error":{"message":"The model ` + "`sql`" + ` does not exist.","type":"NotFoundError","code":404}}`, true},
		{400, `{"object":"error","message":"The following requested LoRA adapters are not loaded: ['sql']\nLoaded ` +
			`adapters: dict_keys([]).","type":"BadRequest","param":null,"code":400}`, true},
		{400, `{"error":{"message":"Got LoRA adapter that has never been loaded: sql\nAll loaded adapters: []."}}`, true},
		{400, `{"error":{"message":"Invalid","code":"model_not_found"}}`, true},
		{400, `{"error":{"message":"Model 'sql' not found"}}`, true},
		{400, `{"error":"No adapter found for sql"}`, true},
		{400, `{"error":"unknown model: sql"}`, true},
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens. Image not found."}}`, false},
		{400, `{"error":{"message":"The model 'llama' does not support tools: template not found"}}`, false},
		{400, `{"error":{"message":"model 'a' is fine, but tool x does not exist"}}`, false},
		{400, `{"error":{"message":"max_tokens must be at least 1"}}`, false},
		{400, ``, false},
		{422, `{"error":{"message":"The LoRA adapter does not exist"}}`, false},
	} {
		var r prompt.Reply
		r.Write([]byte(c.body))
		if o := r.Outcome(c.status, http.Header{}); o.Lacking != c.want {
			t.Errorf("%d %s: lacking is %v", c.status, c.body, o.Lacking)
		}
	}
}
