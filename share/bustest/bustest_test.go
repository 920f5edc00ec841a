package bustest_test

import (
	"testing"

	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

func TestMemory(t *testing.T) {
	bustest.Run(t, bustest.Config{New: func(_ testing.TB, n int) []share.Bus {
		m := share.NewMemory()
		all := make([]share.Bus, n)
		for i := range all {
			all[i] = m
		}
		return all
	}})
}
