// Command soak runs the example gateway for a long time at full rate, while
// replicas join, leave, die, hang, sleep, refuse, answer errors, slow down and write
// nonsense, some of them fast and under a good status; while more clients come than
// fit, prompts break every replica, clients go away, and hostile ones try to take it
// from the others. It says whether the gateway
// stays as it was, and loses nothing that a healthy replica could have served:
//
//	go -C bench run ./soak              # 30 minutes
//	go -C bench run ./soak -for 2m
//
// The gateway is the program itself, built from cmd/warmroute, in a process of
// its own and looked at from outside: its heap after each garbage collection and
// its goroutines as the runtime reports them (GODEBUG gctrace and schedtrace), and
// its resident memory as Linux does. The replicas (package vllmtest) and the
// clients are in this process.
//
// It prints a row each minute, then a verdict: the heap after collections and the
// number of goroutines have not grown, all counts are 0 at the end, each replica
// still gets requests, every planned fault occurred, and no request was lost but to
// a replica that broke off a reply that had begun, or in an overload. The exit status is 1 if
// that is not so, 2 if it could not be determined.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := soak{out: os.Stdout}
	flag.DurationVar(&s.length, "for", 30*time.Minute, "how `long`; at least 40s")
	flag.IntVar(&s.users, "users", 48, "`clients` at once")
	flag.DurationVar(&s.think, "think", 0, "mean `time` from an answer to a client's next request (0: full rate)")
	flag.IntVar(&s.replicas, "replicas", 6, "`replicas` that are there throughout, at least 3; up to 3 more come and go")
	flag.DurationVar(&s.row, "row", time.Minute, "how `often` a row is printed")
	flag.Uint64Var(&s.seed, "seed", 1, "of the clients' messages and the faults")
	flag.StringVar(&s.gateway, "gateway", "", "a gateway that is built already (`path`)")
	flag.BoolVar(&s.hostile, "hostile", true, "hostile clients, for ten seconds of every twenty")
	flag.BoolVar(&s.verbose, "v", false, "print each fault when it occurs")
	flag.Parse()
	good, err := s.run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}
