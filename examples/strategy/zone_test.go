package zone_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	zone "github.com/warmroute/router/examples/strategy"
	"github.com/warmroute/router/routertest"
)

func TestConformance(t *testing.T) {
	for name, ref := range map[string]func(id string) any{
		"no zones": nil,
		"zones":    func(id string) any { return fmt.Sprint("zone", strings.Count(id, "1")%2) },
	} {
		t.Run(name, func(t *testing.T) {
			routertest.Run(t, func(rand func() uint64) router.Strategy {
				return zone.Strategy{Zone: "zone0", Distance: 4, Rand: rand}
			}, routertest.Options{Ref: ref, Skip: skip(ref)})
		})
	}
}

func skip(ref func(string) any) map[routertest.Law]string {
	if ref == nil {
		return nil
	}
	return map[routertest.Law]string{routertest.Ties: "targets of two zones are not equal"}
}

func TestOwnZoneUntilItIsBusy(t *testing.T) {
	s := zone.Strategy{Zone: "b", Distance: 4}
	for busy, want := range map[int]string{0: "near", 3: "near", 5: "far"} {
		d, err := s.Pick(context.Background(), router.Prompt{Text: "Hello."}, []router.Target{
			{ID: "far", Ref: "a", Load: router.Load{Known: true}},
			{ID: "near", Ref: "b", Load: router.Load{Known: true, InFlight: busy}},
		})
		if err != nil || d.Target.ID != want {
			t.Errorf("%d in flight: %s, %v, want %s", busy, d.Target.ID, err, want)
		}
	}
}
