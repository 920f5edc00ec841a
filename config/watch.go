package config

import (
	"bytes"
	"context"
	"time"

	"github.com/warmroute/router/config/file"
	"go.uber.org/zap"
)

// ReloadFile reads the file at path and puts it in place. It logs what came of it,
// and warnings, and tells Options.Reloaded. On SIGHUP it is what to call.
func (g *Gateway) ReloadFile(path string) error {
	f, err := Load(path, g.options)
	if err == nil {
		err = g.Reload(f)
	}
	g.tell(path, f, err)
	return err
}

func (g *Gateway) tell(path string, f *file.File, err error) {
	log := g.options.Logger
	if log == nil {
		log = zap.NewNop()
	}
	if err != nil {
		log.Error("the configuration stays as it was", zap.String("file", path), zap.Error(err))
		f = nil
	} else {
		for _, w := range f.Warnings {
			log.Warn("configuration", zap.String("file", path), zap.Stringer("warning", w))
		}
		log.Info("the configuration is in place", zap.String("file", path), zap.Int("routes", len(f.Routes)), zap.Int("providers", len(f.Providers)))
	}
	if g.options.Reloaded != nil {
		g.options.Reloaded(f, err)
	}
}

// Watch looks at the file at path every so often (0 means 2 s) and puts it in place
// when its contents have changed and were the same twice, until ctx is done, whose
// error it returns. What comes of it is told as by ReloadFile; a file that cannot be
// put in place is told of once and tried again when it changes.
//
// It reads the contents because that needs nothing of the file system: a file that is
// replaced by a rename, the swapped links of a Kubernetes ConfigMap and a network
// share are all alike.
func (g *Gateway) Watch(ctx context.Context, path string, every time.Duration) error {
	if every <= 0 {
		every = 2 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	tried, seen := g.File().Data(), g.File().Data()
	gone, changed := false, false // changed: it was another than tried since then
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		data, err := file.Read(path)
		if err != nil {
			if !gone {
				g.tell(path, nil, err)
			}
			gone, seen = true, nil
			continue
		}
		gone = false
		settled := bytes.Equal(data, seen)
		seen = data
		changed = changed || !bytes.Equal(data, tried)
		if !settled || !changed {
			continue
		}
		tried, changed = data, false
		if bytes.Equal(data, g.File().Data()) {
			continue // a SIGHUP was quicker, or a change was taken back
		}
		f, err := file.Parse(path, data, g.options.file())
		if err == nil {
			err = g.Reload(f)
		}
		g.tell(path, f, err)
	}
}
