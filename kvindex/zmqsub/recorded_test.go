package zmqsub

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/shareddata"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/vllmtest"
)

type recorded struct {
	seq     uint64
	payload []byte
}

// recording returns the live messages of a recording that came over one endpoint,
// of which each data-parallel rank has one.
func recording(t *testing.T, path string, endpoint int) (topic string, all []recorded) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var l struct {
			Channel  string
			Frames   []string
			Endpoint int `json:"endpoint_index"`
		}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.Channel != "live" || len(l.Frames) != 3 || l.Endpoint != endpoint {
			continue
		}
		var frames [3][]byte
		for i := range frames {
			if frames[i], err = hex.DecodeString(l.Frames[i]); err != nil {
				t.Fatal(err)
			}
		}
		topic = string(frames[0])
		all = append(all, recorded{binary.BigEndian.Uint64(frames[1]), frames[2]})
	}
	return topic, all
}

// TestRecordings publishes what real engines sent, loses a part of it on the way,
// and wants the index that the messages in their order make.
func TestRecordings(t *testing.T) {
	t.Run("cut", func(t *testing.T) { publishRecordings(t, filepath.Join("..", "testdata", "recorded", "vllm_live")) })
	t.Run("full", func(t *testing.T) { publishRecordings(t, shareddata.Path(t, "vllm_live")) })
}

func publishRecordings(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "v*", "*.events.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		for i := range 2 * len(files) {
			file, rank := files[i/2], i%2
			if rank > 0 && !strings.Contains(file, "data_parallel") {
				continue
			}
			topic, all := recording(t, file, rank)
			if len(all) == 0 {
				continue
			}
			name := strings.TrimSuffix(filepath.Base(file), ".events.jsonl")
			version := filepath.Base(filepath.Dir(file))
			want, err := kvindex.New(kvindex.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p := pub(t, vllmtest.Events{Topic: topic, ShortReplay: version < "v0.26"})
			d := newDiary(t)
			s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
			last, first := uint64(0), all[0].seq
			p.SetNext(first)
			p.Drop(func(seq uint64) bool { return seq%3 == 1 && seq != all[len(all)-1].seq })
			for i, m := range all {
				if i > 0 && m.seq != last+1 { // another life, or a late joiner's hole
					eventually(t, "the life is applied", func() bool { return d.holds("a", first, last) && d.Trusted("a") })
					n := s.Stats().Connects
					p.Restart()
					p.SetNext(m.seq)
					eventually(t, "it is connected again", func() bool { return s.Stats().Connects > n })
					first = m.seq
				}
				b, err := kvindex.Decode(m.payload)
				if err != nil {
					t.Fatal(err)
				}
				if m.seq == first {
					want.Reset("a")
				}
				if err := want.Apply("a", m.seq, b); err != nil {
					t.Fatal(err)
				}
				last = m.seq
				p.Publish(m.payload)
			}
			eventually(t, version+"/"+name+" is applied", func() bool { return d.holds("a", first, last) && d.Trusted("a") })
			got, _ := d.Index.Target("a")
			exp, _ := want.Target("a")
			if got.Blocks != exp.Blocks || got.Orphans != exp.Orphans {
				t.Errorf("%s/%s: %d blocks and %d orphans, want %d and %d", version, name, got.Blocks, got.Orphans, exp.Blocks,
					exp.Orphans)
			}
			p.Close()
		}
	})
}
