package share_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/strategy/leastwork"
)

// gateway is one of a fleet.
type gateway struct {
	share  *share.Share
	view   *loadview.View
	router *router.Router
}

func newGateway(bus share.Bus, name string) (*gateway, error) {
	s, err := share.New(share.Config{Bus: bus, Secret: "known to the gateways alone", Name: name})
	if err != nil {
		return nil, err
	}
	v, err := loadview.New(loadview.Config{Share: s})
	if err != nil {
		return nil, err
	}
	if err := v.Set([]loadview.Member{{ID: "replica-0"}, {ID: "replica-1"}, {ID: "replica-2"}}); err != nil {
		return nil, err
	}
	w, err := leastwork.New(leastwork.Config{Share: s})
	if err != nil {
		return nil, err
	}
	return &gateway{s, v, router.New(w, v, router.Options{})}, nil
}

// Two gateways share a bus; what one has sent, the other knows.
func Example() {
	bus := share.NewMemory()
	one, err := newGateway(bus, "one")
	if err != nil {
		fmt.Println(err)
		return
	}
	two, err := newGateway(bus, "two")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go one.share.Run(ctx)
	go two.share.Run(ctx)

	p := router.Prompt{Model: "llama", Text: strings.Repeat("a long conversation ", 1000)}
	l, err := one.router.Route(ctx, p)
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := l.Decision().Target.ID
	for two.share.State().Marks == 0 { // until it is known
		time.Sleep(time.Millisecond)
	}
	l.Done(router.Outcome{Stage: router.Finished, Status: 200})

	all, err := two.router.Explain(ctx, p)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range all {
		fmt.Println(c.Target.ID == sent, c.Cached, "of", c.Length)
	}
	// Output:
	// true 19456 of 20000
	// false 0 of 20000
	// false 0 of 20000
}

// A caller with a loop of its own calls Poll.
func ExampleShare_Poll() {
	now := time.Unix(0, 0)
	s, err := share.New(share.Config{
		Bus: share.NewMemory(), Secret: "known to the gateways alone", Now: func() time.Time { return now },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop, err := s.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	fmt.Println("again in", s.Poll())
	fmt.Println(s.State().Sent, "frame")
	// Output:
	// again in 250ms
	// 1 frame
}

func ExampleConfig_WithDefaults() {
	c := share.Config{Name: "gateway-0"}.WithDefaults()
	fmt.Println(c.Subject, c.MaxMarks, c.Interval, c.MaxLag)
	// Output: warmroute 524288 5ms 50ms
}

func TestConfigErrors(t *testing.T) {
	ok := share.Config{Bus: share.NewMemory(), Secret: strings.Repeat("s", 16)}
	for _, c := range []struct {
		field string
		set   func(*share.Config)
	}{
		{"Bus", func(c *share.Config) { c.Bus = nil }},
		{"Secret", func(c *share.Config) { c.Secret = "short" }},
		{"Subject", func(c *share.Config) { c.Subject = "a..b" }},
		{"Subject", func(c *share.Config) { c.Subject = "a.*" }},
		{"Subject", func(c *share.Config) { c.Subject = "a." }},
		{"Name", func(c *share.Config) { c.Name = strings.Repeat("n", 65) }},
		{"MaxMarks", func(c *share.Config) { c.MaxMarks = -1 }},
		{"Interval", func(c *share.Config) { c.Interval = 11 * time.Millisecond }},
		{"MaxLag", func(c *share.Config) { c.MaxLag = -1 }},
	} {
		cfg := ok
		c.set(&cfg)
		_, err := share.New(cfg)
		var e *router.ConfigError
		if !errors.As(err, &e) || e.Field != c.field || strings.Contains(err.Error(), "short") {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	if _, err := share.New(ok); err != nil {
		t.Error(err)
	}
}

// A response that one gateway's engine made is found by the others.
func ExampleShare_Holders() {
	bus := share.NewMemory()
	var holders []*router.Holders
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, name := range []string{"one", "two"} {
		s, err := share.New(share.Config{Bus: bus, Secret: "known to the gateways alone", Name: name})
		if err != nil {
			fmt.Println(err)
			return
		}
		v, err := loadview.New(loadview.Config{Share: s})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := v.Put(loadview.Member{ID: "replica-0"}); err != nil {
			fmt.Println(err)
			return
		}
		h, err := s.Holders(router.HoldersConfig{})
		if err != nil {
			fmt.Println(err)
			return
		}
		holders = append(holders, h)
		go s.Run(ctx)
		for s.State().Sent == 0 { // until it hears
			time.Sleep(time.Millisecond)
		}
	}
	holders[0].Bind("resp_1", "replica-0")
	for holders[1].Len() == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(holders[1].Holder("resp_1"))
	// Output: replica-0 true
}

func ExampleValidSubject() {
	fmt.Println(share.ValidSubject("fleet-1.prod"), share.ValidSubject("fleet.*"))
	// Output: true false
}
