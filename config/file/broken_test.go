package file

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is reported over what was expected")

// Each file of testdata/broken has a file of exactly the problems that are
// reported.
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.toml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			_, err := Load(file, options())
			var b strings.Builder
			var all *Error
			errors.As(err, &all)
			for _, p := range all.Problems {
				b.WriteString(p.String() + "\n")
			}
			golden := strings.TrimSuffix(file, ".toml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" || b.Len() == 0 {
				t.Errorf("%s", d)
			}
			if strings.Contains(b.String(), "secret@") || strings.Contains(b.String(), "sk-") {
				t.Error("a secret is reported")
			}
		})
	}
}

func TestErrorNamesTheFile(t *testing.T) {
	_, err := Load("testdata/broken/weight_zero.toml", options())
	want := "config: testdata/broken/weight_zero.toml:8:10: routes[0].targets[0].weight: is 0; it must be above 0, and " +
		"to send nothing to a provider leave it out"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if _, err := Load("testdata/none.toml", options()); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("%v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, ok := err.(*os.PathError); ok {
			return err
		}
		err = u.Unwrap()
	}
}
