package adapters_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
)

// Gateways that share their view know which adapters the others had loaded, and evicted by that.
func TestPeers(t *testing.T) {
	bus := share.NewMemory()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []*adapters.Slots
	for range 2 {
		sh, err := share.New(share.Config{Bus: bus, Secret: "known to the gateways alone"})
		if err != nil {
			t.Fatal(err)
		}
		v, err := loadview.New(loadview.Config{Share: sh})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Set([]loadview.Member{{ID: "e"}}); err != nil {
			t.Fatal(err)
		}
		s, err := adapters.New(adapters.Config{Slots: 2, Share: sh})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = sh.Run(ctx) }()
		all = append(all, s)
	}
	// News is not repeated for those that join later, so the first is sent until it is heard.
	eventually(t, func() bool {
		use(all[0], "e", "a")
		return slices.Contains(loaded(all[1], "e"), "a")
	})
	use(all[0], "e", "b")
	u := all[0].Sent("e", "fails", 1)
	u.End(router.Failed)
	eventually(t, func() bool { return slices.Equal(loaded(all[1], "e"), []string{"a", "b"}) })
	use(all[1], "e", "c")
	eventually(t, func() bool { return slices.Equal(loaded(all[0], "e"), []string{"b", "c"}) })
	if n := all[0].Stats().Requests; n < 4 {
		t.Errorf("%d requests of both gateways", n)
	}
}

func use(s *adapters.Slots, id, name string) {
	u := s.Sent(id, name, 1)
	u.FirstToken()
	u.End(router.Finished)
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}
