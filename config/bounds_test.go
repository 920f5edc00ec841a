package config

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// maxFile is the size of a file that is too long, but for its last bytes.
const maxFile = 4 << 20

// A fleet of 1,000 is well within the bounds.
func TestThousandReplicas(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "[[providers]]\nname = \"vllm-%d\"\nkind = \"openai_compatible\"\napi_base = "+
			"\"http://10.0.%d.%d:8000\"\n[providers.kv_events]\nendpoint = "+
			"\"tcp://10.0.%d.%d:5557\"\n[providers.lmcache]\nendpoint = \"http://10.0.%d.%d:8100/occupancy\"\n",
			i, i/250, i%250, i/250, i%250, i/250, i%250)
	}
	for r := range 4 {
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"m%d\"\nstrategy = \"least_work\"\n", r)
		for i := range 1000 {
			fmt.Fprintf(&b, "[[routes.targets]]\nprovider = \"vllm-%d\"\nmodel = \"llama\"\nweight = %d\n", i, 1+i%4)
		}
	}
	start := time.Now()
	g := mustBuild(t, b.String(), options())
	if id := serve(t, g, "m3", promptOf("hello")); !strings.HasPrefix(id, "vllm-") {
		t.Error(id)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// What a hostile file costs is bounded, in time and by the stack.
func TestHostile(t *testing.T) {
	repeat := func(n int, f string) string {
		var b strings.Builder
		for i := range n {
			if b.Len() > maxFile {
				break
			}
			fmt.Fprintf(&b, f, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"brackets":        "a = " + strings.Repeat("[", 1<<20),
		"braces":          strings.Repeat("a={", 1<<19),
		"after a comment": "# \"\na = " + strings.Repeat("[", 1<<20),
		"after strings":   "a = \"\"\"\"\"\"\nb = '''''''\nc = " + strings.Repeat("[", 1<<20),
		"dots":            strings.Repeat("a.", 1<<20) + "a = 1",
		"header of dots":  "[" + strings.Repeat("a.", 1<<20) + "a]",
		"keys":            repeat(1<<20, "k%d=1\n"),
		"dotted keys":     repeat(1<<18, "a.k%d=1\n"),
		"tables":          repeat(1<<20, "[a.k%d]\n"),
		"routes":          repeat(1<<20, "[[routes]]\nmodel='m%d'\n"),
		"long list":       "a = [" + strings.Repeat("1,", 1<<20) + "]",
		"unknown":         "[[providers]]\n" + repeat(2000, "nama%d=1\n"),
		"many targets": repeat(3000, "[[providers]]\nname='provider-%d'\napi_base='http://a'\n") + "[[routes]]\nmodel='m'\n" +
			repeat(3000, "[[routes.targets]]\nprovider='prowider-%d'\n"),
		"too long": strings.Repeat("#\n", maxFile),
		"one line": "[[providers]]\nname = \"" + strings.Repeat("x", maxFile-100) + "\"\n",
		"nothing":  string(bytes.Repeat([]byte{0}, 1<<20)),
	} {
		start := time.Now()
		_, err := Parse([]byte(text), options())
		took := time.Since(start)
		t.Logf("%s: %v", name, took)
		if err == nil || took > time.Minute {
			t.Errorf("%s: %v after %v", name, err != nil, took)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		designFile, routesFile, exampleText(f), "a=[[]]", "a.b.c=1\n[a.d]\n", "\"a\\u0000b\"=1\n", "routes=[{},1,[]]",
		"providers=[]\nroutes=1",
		"[[routes]]\nmodel='*'\ntargets=[{provider='a',weight=nan}]\n[routes.pipeline]\nsession_ttl=1e300\n",
		"a='''\n[[[[[[[[[[[[[[[[[[[[['''",
		"x=\"\"\"\"\"\"\"\"\n", "[[providers]]\nname='a'\nheaders_env={'a b'='c'}", "# \xff", "a=\"\\\"[\"\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 1<<16 {
			return
		}
		file, err := Parse([]byte(s), options())
		if err != nil {
			ps := problems(err)
			if len(ps) == 0 {
				t.Fatalf("%v is no *file.Error", err)
			}
			lines := strings.Split(s, "\n")
			for _, p := range ps {
				if p.Message == "" || p.Line < 0 || p.Line > len(lines) || p.Line > 0 &&
					(p.Column < 1 || p.Column > len(lines[p.Line-1])+1) {
					t.Errorf("%q: %+v", s, p)
				}
			}
			return
		}
		out := file.Effective()
		again, err := Parse([]byte(out), options())
		if err != nil {
			t.Fatalf("%q as a whole:\n%s\n%v", s, out, err)
		}
		if twice := again.Effective(); twice != out {
			t.Errorf("%q as a whole:\n%s\nand again:\n%s", s, out, twice)
		}
		if _, err := Build(file, options()); err != nil {
			t.Errorf("%q is a good file that cannot be built: %v", s, err)
		}
	})
}
