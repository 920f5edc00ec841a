package contentcoding_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
)

// encode applies one coding.
func encode(t testing.TB, coding string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip", "x-gzip", "GZIP":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw":
		w, err = flate.NewWriter(&out, 6)
	case "zstd":
		w, err = zstd.NewWriter(&out)
	default:
		return body
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func newDecoder(t testing.TB, c contentcoding.Config) *contentcoding.Decoder {
	t.Helper()
	d, err := contentcoding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// text returns n bytes that compress like text.
func text(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the model reads a prompt and writes tokens one after another until it stops")
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return []byte(b.String()[:n])
}

func TestDecode(t *testing.T) {
	d := newDecoder(t, contentcoding.Config{})
	for _, n := range []int{1, 100, 1 << 20} {
		body := text(n)
		for header, list := range map[string][]string{
			"": {}, "identity": {}, "Identity , ,identity": {},
			"gzip": {"gzip"}, "x-gzip": {"gzip"}, "GZIP": {"gzip"}, "deflate": {"deflate"}, "Deflate": {"raw"}, "zstd": {"zstd"},
			"gzip, zstd": {"gzip", "zstd"}, "zstd,identity,gzip": {"zstd", "gzip"}, "zstd, zstd": {"zstd", "zstd"},
			"deflate, gzip, zstd": {"deflate", "gzip", "zstd"},
		} {
			coded := body
			for _, c := range list {
				coded = encode(t, c, coded)
			}
			got, err := d.Decode(t.Context(), []string{header}, coded)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%q of %d bytes: %d bytes, %v", header, n, len(got), err)
			}
			if contentcoding.Encoded([]string{header}) != (len(list) > 0) || contentcoding.Check([]string{header}) != nil {
				t.Errorf("%q", header)
			}
		}
	}
	body := text(1000)
	both := append(encode(t, "gzip", body[:400]), encode(t, "gzip", body[400:])...)
	frames := append(encode(t, "zstd", body[:400]), encode(t, "zstd", body[400:])...)
	for _, c := range []struct {
		values []string
		body   []byte
	}{{[]string{"gzip"}, both}, {[]string{"zstd"}, frames}, {[]string{"gzip", "zstd"}, encode(t, "zstd", both)}} {
		if got, err := d.Decode(t.Context(), c.values, c.body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%v: %d bytes, %v", c.values, len(got), err)
		}
	}
	if got, err := d.Decode(t.Context(), []string{"gzip"}, nil); err != nil || len(got) > 0 {
		t.Error("an empty body", got, err)
	}
}

// TestMalformed: a body that is not whole, not of its coding or followed by more is refused, never cut.
func TestMalformed(t *testing.T) {
	d := newDecoder(t, contentcoding.Config{})
	body := text(5000)
	for _, coding := range []string{"gzip", "deflate", "raw", "zstd"} {
		header := strings.Replace(coding, "raw", "deflate", 1)
		good := encode(t, coding, body)
		for n := 1; n < len(good); n += 1 + len(good)/40 {
			if got, err := d.Decode(t.Context(), []string{header}, good[:n]); !errors.Is(err, contentcoding.ErrMalformed) {
				t.Errorf("%s, %d of %d bytes: %d bytes, %v", coding, n, len(good), len(got), err)
			}
		}
		for _, bad := range [][]byte{append(bytes.Clone(good), "rest"...), []byte(`{"model":"m"}`), {0}, {0x1f, 0x8b}, body} {
			if _, err := d.Decode(t.Context(), []string{header}, bad); !errors.Is(err, contentcoding.ErrMalformed) {
				t.Errorf("%s, %.20q: %v", coding, bad, err)
			}
		}
		if got, err := d.Decode(t.Context(), []string{header}, good); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s after failures: %v", coding, err)
		}
	}
}

func TestUnsupported(t *testing.T) {
	d := newDecoder(t, contentcoding.Config{})
	for value, coding := range map[string]string{
		"br": "br", "gzip, br": "br", "compress": "compress", "aws-chunked": "aws-chunked", "*": "*", "gzip;q=1": "gzip;q=1",
		"gzip,gzip,gzip,gzip": "more than three codings",
	} {
		_, err := d.Decode(t.Context(), []string{value}, []byte("x"))
		var un *contentcoding.UnsupportedError
		if !errors.As(err, &un) || un.Coding != coding || !errors.Is(err, contentcoding.ErrUnsupported) ||
			!strings.Contains(err.Error(), "zstd, gzip, deflate") || contentcoding.Check([]string{value}) == nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestBombs: no body makes more than its bounds, in bytes and for each of its own bytes.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 8<<20)
	for _, codings := range [][]string{
		{"gzip"}, {"deflate"}, {"zstd"}, {"gzip", "gzip"}, {"zstd", "gzip"}, {"zstd", "zstd", "zstd"},
	} {
		coded := zeros
		for _, c := range codings {
			coded = encode(t, c, coded)
		}
		for _, c := range []contentcoding.Config{{MaxBytes: 8<<20 - 1, MaxRatio: 1 << 30}, {}, {MaxRatio: 7}} {
			var n counter
			err := newDecoder(t, c).DecodeTo(t.Context(), &n, codings, coded)
			most := c.WithDefaults()
			if bound := min(most.MaxBytes, 1<<20+most.MaxRatio*int64(len(coded))); int64(len(zeros)) > bound {
				if !errors.Is(err, contentcoding.ErrTooLarge) || int64(n) > bound {
					t.Errorf("%v, %+v: %d bytes, %v", codings, c, n, err)
				}
			} else if err != nil || int(n) != len(zeros) {
				t.Errorf("%v, %+v: %d bytes, %v", codings, c, n, err)
			}
		}
	}
	many := bytes.Repeat(encode(t, "gzip", nil), 5000)
	d := newDecoder(t, contentcoding.Config{})
	if _, err := d.Decode(t.Context(), []string{"gzip"}, many); !errors.Is(err, contentcoding.ErrMalformed) {
		t.Error("5,000 members:", err)
	}
	var wide bytes.Buffer
	w, err := zstd.NewWriter(&wide, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	w.Write(text(1 << 20))
	w.Flush()
	w.Write(text(1 << 20))
	w.Close()
	_, err = d.Decode(t.Context(), []string{"zstd"}, wide.Bytes())
	if !errors.Is(err, contentcoding.ErrMalformed) {
		t.Error("a window of 64 MiB:", err)
	}
}

// TestConcurrent: a place is waited for until ctx ends, and every place comes back.
func TestConcurrent(t *testing.T) {
	d := newDecoder(t, contentcoding.Config{Concurrent: 1})
	body := encode(t, "zstd", text(1000))
	writing, release := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = d.DecodeTo(t.Context(), blocks{writing, release}, []string{"zstd"}, body)
	})
	<-writing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Decode(ctx, []string{"zstd"}, body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	wg.Wait()
	full := errors.New("full")
	if err := d.DecodeTo(t.Context(), fails{full}, []string{"zstd"}, body); err != full {
		t.Error(err)
	}
	for range 8 {
		wg.Go(func() {
			if got, err := d.Decode(t.Context(), []string{"zstd"}, body); err != nil || len(got) != 1000 {
				t.Error(len(got), err)
			}
		})
	}
	wg.Wait()
}

func TestConfig(t *testing.T) {
	_, err := contentcoding.New(contentcoding.Config{MaxBytes: -1, MaxRatio: -1, Concurrent: -1})
	var bad *router.ConfigError
	if !errors.As(err, &bad) || strings.Count(err.Error(), "contentcoding: ") != 3 {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range []string{"gzip", "deflate", "raw", "zstd"} {
		f.Add(c, encode(f, c, text(300)))
		f.Add(c+",gzip", encode(f, "gzip", encode(f, c, text(300))))
	}
	d := newDecoder(f, contentcoding.Config{MaxBytes: 1 << 16})
	f.Fuzz(func(t *testing.T, values string, body []byte) {
		var n counter
		err := d.DecodeTo(t.Context(), &n, []string{values}, body)
		if contentcoding.Encoded([]string{values}) && len(body) > 0 && n > 1<<16 {
			t.Errorf("%d bytes", n)
		}
		if (contentcoding.Check([]string{values}) != nil) != errors.Is(err, contentcoding.ErrUnsupported) {
			t.Error(err)
		}
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

type fails struct{ err error }

func (f fails) Write([]byte) (int, error) { return 0, f.err }

type blocks struct{ writing, release chan bool }

func (b blocks) Write(p []byte) (int, error) {
	b.writing <- true
	<-b.release
	return len(p), nil
}
