package membudget_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/warmroute/router/membudget"
)

// A host reserves memory before it keeps something of a client's, and answers one that it has no memory for.
func Example() {
	b, err := membudget.New(membudget.Config{Limit: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	bodies := b.Account(membudget.Bodies)
	if err := bodies.Reserve(300); err != nil {
		fmt.Println(err)
		return
	}
	err = bodies.Reserve(300)
	var shed *membudget.Error
	if errors.As(err, &shed) {
		fmt.Println(shed)
		fmt.Println(shed.StatusCode(), shed.RetryAfter(), shed.Message())
	}
	bodies.Release(300)
	fmt.Println(bodies.Used())
	// Output:
	// membudget: the account "bodies" has no 300 bytes left of its 350
	// 503 1s the gateway's memory for bodies is in use; try again later
	// 0
}

func ExampleConfig_WithDefaults() {
	c := membudget.Config{}.WithDefaults()
	fmt.Println(c.Limit>>20, c.Shares[membudget.Replies])
	// Output: 2048 0.25
}

func ExampleDefaultShares() {
	shares := membudget.DefaultShares()
	shares[membudget.Leases] = 0.5 // of a sidecar
	b, err := membudget.New(membudget.Config{Limit: 1000, Shares: shares})
	fmt.Println(b.Account(membudget.Leases).Limit(), err)
	// Output: 500 <nil>
}

func ExampleBudget_Set() {
	b, _ := membudget.New(membudget.Config{Limit: 1000})
	fmt.Println(b.Account(membudget.Replies).Limit())
	err := b.Set(membudget.Config{Limit: 2000})
	fmt.Println(b.Account(membudget.Replies).Limit(), err)
	// Output:
	// 250
	// 500 <nil>
}

func ExampleBudget_Stats() {
	b, _ := membudget.New(membudget.Config{Limit: 1000, Shares: map[string]float64{membudget.Events: 0.5}})
	_ = b.Account(membudget.Events).Reserve(400)
	_ = b.Account(membudget.Events).Reserve(400)
	for _, a := range b.Stats().Accounts {
		fmt.Println(a.Name, a.Used, "of", a.Limit, "shed", a.Shed)
	}
	// Output: events 400 of 500 shed 1
}

func ExampleBudget_Account() {
	b, _ := membudget.New(membudget.Config{Limit: 1000})
	a := b.Account("uploads") // without a share it may take all
	fmt.Println(a.Name(), a.Limit(), a.Used())
	// Output: uploads 1000 0
}

func ExampleAccount_Wait() {
	b, _ := membudget.New(membudget.Config{Limit: 1000})
	events := b.Account(membudget.Events)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println(events.Wait(ctx, 75), events.Wait(ctx, 75))
	// Output: <nil> context canceled
}

func ExampleAccount_Hold() {
	b, _ := membudget.New(membudget.Config{Limit: 1000})
	h := b.Account(membudget.Prompts).Hold()
	defer h.Release()
	fmt.Println(h.Set(200), h.Bytes()) // while it is read
	fmt.Println(h.Set(50), h.Bytes())  // the part that is kept
	fmt.Println(h.Add(10), h.Bytes())
	fmt.Println(h.Account().Used())
	// Output:
	// <nil> 200
	// <nil> 50
	// <nil> 60
	// 60
}

func ExampleReadAll() {
	b, _ := membudget.New(membudget.Config{Limit: 1000})
	h := b.Account(membudget.Tokens).Hold()
	defer h.Release()
	text, err := membudget.ReadAll(&h, strings.NewReader("an answer"), 9, 20)
	fmt.Printf("%s, %v, %d\n", text, err, h.Bytes())
	// Output: an answer, <nil>, 10
}

func ExampleError_Is() {
	var err error = &membudget.Error{Account: membudget.Bodies, Bytes: 10, Limit: 5, Never: true}
	fmt.Println(errors.Is(err, membudget.ErrShed))
	fmt.Println(err)
	// Output:
	// true
	// membudget: 10 bytes are more than the account "bodies" may have, 5
}
