package frameworks_test

import (
	"context"
	"fmt"

	"github.com/go-kratos/kratos/v2/selector"

	"github.com/warmroute/router"
	"github.com/warmroute/router/examples/frameworks"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

func ExampleKratos() {
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})
	k := &frameworks.Kratos{Router: r, Fleet: fleet}
	k.Apply([]selector.Node{selector.NewNode("http", "10.0.0.1:80", nil)})
	ctx := frameworks.WithRequest(context.Background(), r.Request(router.Prompt{Text: "Why is the sky blue?"}))
	node, done, err := k.Select(ctx)
	if err != nil {
		panic(err)
	}
	done(ctx, selector.DoneInfo{})
	fmt.Println(node.Address())
	// Output: 10.0.0.1:80
}
