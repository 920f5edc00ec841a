package share

import (
	"context"
	"sync"
	"time"
	"weak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/sharing"
)

// Share is this gateway's part in the fleet's view. One Share is handed to the fleet ([loadview.Config.Share]) and to
// the strategies. Its methods are safe for concurrent use, but for Poll.
//
// [loadview.Config.Share]: https://pkg.go.dev/github.com/warmroute/router/loadview#Config
type Share struct {
	cfg  Config
	node *sharing.Node
}

// New returns a Share that knows nothing yet and sends nothing: see Run. The error is a *router.ConfigError for each
// field that is not allowed, joined.
func New(c Config) (*Share, error) {
	c = c.WithDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	key, err := sharing.NewKey(c.Secret, c.Subject)
	if err != nil {
		return nil, err
	}
	return &Share{cfg: c, node: sharing.New(sharing.Config{
		Bus: c.Bus, Key: key, Subject: c.Subject, Name: c.Name, ID: c.drawID(), MaxMarks: c.MaxMarks,
		Interval: c.Interval, Hello: hello, Silence: silence, MaxLag: c.MaxLag, LagFor: lagFor,
		Cache: !c.NoCache, Load: !c.NoLoad, Now: c.Now, Spawn: func(f func()) { go f() },
		Hooks: sharing.Hooks{LoadChanged: c.Trace.LoadChanged, Ignored: c.Trace.Ignored},
	})}, nil
}

const (
	hello   = 250 * time.Millisecond // a gateway with nothing to say says so this often
	silence = time.Second
	lagFor  = time.Second
)

// Inside makes a Share a [router.Peers]. It is for the packages of this module. A nil Share has nothing inside.
func (s *Share) Inside(peering.Inside) peering.Node {
	if s == nil {
		return nil
	}
	return s.node.Inside()
}

// Run hears the other gateways and publishes what this one does, until ctx is done. It then says that this gateway is
// gone. The error is that of the Bus if it refuses to subscribe; a Bus that is not connected is none.
func (s *Share) Run(ctx context.Context) error {
	stop, err := s.Open()
	if err != nil {
		return err
	}
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.node.Wake():
		}
		timer.Reset(s.Poll())
	}
}

// Open is Run for callers with a loop of their own, who call Poll: it begins to hear the others, until stop is called.
// stop says that this gateway is gone.
func (s *Share) Open() (stop func(), err error) {
	leave, err := s.node.Open()
	if err != nil {
		return nil, err
	}
	return func() {
		s.node.Bye()
		leave()
	}, nil
}

// Holders returns a Holders that takes in the bindings of the other gateways, and passes on those that are made here,
// for Options.Holders: an id of state is then followed whichever gateway it comes to. A binding that was here first
// stays the first. cfg.Bound is called for the bindings of the others, too. The ids are encrypted on the Bus.
func (s *Share) Holders(cfg router.HoldersConfig) (*router.Holders, error) {
	bound := cfg.Bound
	var heard sync.Map // bindings that are being taken in
	cfg.Bound = func(id, target string) {
		if _, ok := heard.Load([2]string{id, target}); !ok {
			s.node.Pass(peering.Bound, target, []byte(id))
		}
		if bound != nil {
			bound(id, target)
		}
	}
	h, err := router.NewHolders(cfg)
	if err != nil {
		return nil, err
	}
	w := weak.Make(h) // the Share may outlive it
	s.node.OnNews(peering.Bound, func(target string, id []byte, _ time.Duration) bool {
		h := w.Value()
		if h == nil {
			return false
		}
		key := [2]string{string(id), target}
		heard.Store(key, true)
		h.Bind(key[0], target)
		heard.Delete(key)
		return true
	})
	return h, nil
}

// Poll does what Run does at one moment, and returns how long after it, at most, it is to be called again. It is to be
// called after each event, too. It does not wait. One goroutine at a time may call it.
func (s *Share) Poll() (next time.Duration) { return s.node.Poll() }
