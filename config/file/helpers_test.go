package file

import "testing"

// options are those of a host that reads KV events, with a few variables set.
func options() Options {
	vars := map[string]string{"KEY": "sk-1", "TEAM": "blue", "LMC": "lm", "BAD": "a\nb", "EMPTY": ""}
	return Options{
		LookupEnv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		KVEvents:  true,
	}
}

func mustParse(t testing.TB, text string, o Options) *File {
	t.Helper()
	f, err := Parse("", []byte(text), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return f
}
