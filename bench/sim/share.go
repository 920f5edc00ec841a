package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/warmroute/router/share"
)

// Sharing is what the gateways share, and how. The zero Sharing is nothing.
type Sharing struct {
	// On has them share; Lag is the time that a frame takes, Loss the share of frames
	// that do not arrive, at each gateway others.
	On   bool
	Lag  time.Duration
	Loss float64
	// NoCache and NoLoad leave one half out.
	NoCache, NoLoad bool
	// Every has frames wait for the next multiple of it, as with routers that publish by a timer; each gateway has its
	// own. 0: they do not wait.
	Every time.Duration
	// Paths has them share whole paths, as SGLang's mesh does: every Every each gateway sends the hashes of the prompts
	// that it sent since, and where. A gateway that was never sent a prompt that begins so does not know what a hash is
	// of, and drops it. The load is not shared.
	Paths bool
}

// join makes the share of gateway g.
func (f *fleet) join(gt *gate, g int) (err error) {
	c := &f.cfg.Share
	if !c.On || f.cfg.Gateways == 1 {
		return nil
	}
	if c.Paths {
		gt.paths, err = newPaths()
		return err
	}
	gt.share, err = share.New(share.Config{
		Bus: bus{f, g}, Secret: "the secret of a simulation", Name: "gateway", Now: f.clock, NoCache: c.NoCache,
		NoLoad: c.NoLoad, MaxLag: time.Hour, Rand: rand.New(rand.NewPCG(f.cfg.Seed, uint64(g)+3000)).Uint64,
	})
	return err
}

// bus is the bus as one gateway has it. Requests take no time.
type bus struct {
	f *fleet
	g int
}

func (b bus) Publish(_ string, data []byte) error {
	f := b.f
	data = append([]byte(nil), data...)
	f.res.Frames++
	f.res.FrameBytes += int64(len(data))
	for g := range f.gates {
		if f.cfg.Share.Loss > 0 && f.losses.Float64() < f.cfg.Share.Loss {
			continue
		}
		f.mails++
		f.mail[f.mails] = data
		f.post(event{at: f.tickOf(b.g) + at(f.cfg.Share.Lag), kind: evFrame, index: int32(g), epoch: f.mails})
	}
	return nil
}

// tickOf returns when gateway g publishes next.
func (f *fleet) tickOf(g int) instant {
	every := at(f.cfg.Share.Every)
	if every == 0 {
		return f.now
	}
	first := every * instant(g+1) / instant(len(f.gates))
	return first + max(0, (f.now-first+every-1)/every)*every
}

func (b bus) Subscribe(_ string, receive func([]byte)) (func(), error) {
	b.f.gates[b.g].receive = receive
	return func() {}, nil
}

func (b bus) Serve(subject string, answer func([]byte) []byte) (func(), error) {
	b.f.services[subject] = answer
	return func() {}, nil
}

func (b bus) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	answer := b.f.services[subject]
	if answer == nil {
		return nil, share.ErrNoPeer
	}
	return answer(data), nil
}

func (b bus) State() share.BusState { return share.BusState{Connected: true} }

// touch notes that gateway g may have something to publish.
func (f *fleet) touch(g int) {
	if gt := f.gates[g]; gt.share != nil && !gt.touched {
		gt.touched = true
		f.touched = append(f.touched, g)
	}
}

// poll has the gateways that have something to publish do it.
func (f *fleet) poll() {
	for _, g := range f.touched {
		gt := f.gates[g]
		gt.touched = false
		next := f.now + max(at(gt.share.Poll()), 1)
		if gt.polled <= f.now || next < gt.polled {
			gt.polled = next
			f.post(event{at: next, kind: evPoll, index: int32(g)})
		}
	}
	f.touched = f.touched[:0]
}

// deliver hands a frame to gateway g.
func (f *fleet) deliver(g int, mail uint32) {
	data := f.mail[mail]
	delete(f.mail, mail)
	f.gates[g].receive(data)
}
