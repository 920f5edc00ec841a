package nearest

import "testing"

func TestOf(t *testing.T) {
	known := []string{"strategy", "target", "targets", "model"}
	for name, want := range map[string]string{
		"stratgy": "strategy", "Target": "target", "tragets": "targets", "modle": "model", "x": "", "": "", "zzzzzzzz": "",
	} {
		if got := Of(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	long := string(make([]byte, 100))
	if Of(long, []string{long}) != "" {
		t.Error("names of any length are compared")
	}
}
