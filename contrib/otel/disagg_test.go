package otel_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
)

// aSplit is a route with prefill and decode apart.
type aSplit struct{}

func (aSplit) Stats() disagg.Stats {
	return disagg.Stats{
		Split: 5, PrefillFailed: 1, Reused: 2, Again: 3, Expired: 4, Stranded: 6, Silent: 8,
		Skipped: map[disagg.Skip]uint64{disagg.SkipShort: 7, disagg.SkipIdle: 0},
	}
}

func (aSplit) Place(router.Target) disagg.Place { return disagg.Place{Role: disagg.Decode} }

// TestDisagg: the numbers of a route with roles are recorded, with its fleet's targets by their role.
func TestDisagg(t *testing.T) {
	r := everything(t)
	r.is(5, "warmroute.disagg.prefills", "warmroute.route", "r", "warmroute.outcome", "finished")
	r.is(1, "warmroute.disagg.prefills", "warmroute.route", "r", "warmroute.outcome", "failed")
	r.is(7, "warmroute.disagg.skipped", "warmroute.route", "r", "warmroute.reason", "short")
	r.is(6, "warmroute.disagg.blocks_lost", "warmroute.route", "r", "warmroute.cause", "stranded")
	r.is(4, "warmroute.disagg.blocks_lost", "warmroute.route", "r", "warmroute.cause", "expired")
	r.is(2, "warmroute.disagg.reused", "warmroute.route", "r")
	r.is(3, "warmroute.disagg.again", "warmroute.route", "r")
	r.is(8, "warmroute.disagg.silent", "warmroute.route", "r")
	r.is(0, "warmroute.disagg.targets", "warmroute.route", "r", "warmroute.role", "prefill")
}
