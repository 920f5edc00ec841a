package config

import (
	"bytes"
	"context"
	"time"

	"github.com/warmroute/router/config/file"
	"go.uber.org/zap"
)

// ReloadFile reads the file at path and puts it in place. It logs the result and the
// file's warnings, and calls Options.Reloaded. A host calls it on SIGHUP.
func (g *Gateway) ReloadFile(path string) error {
	f, err := Load(path, g.options)
	if err == nil {
		err = g.Reload(f)
	}
	g.report(path, f, err)
	return err
}

// report logs a reload and calls Options.Reloaded.
func (g *Gateway) report(path string, f *file.File, err error) {
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
		log.Info("the configuration is in place",
			zap.String("file", path), zap.Int("routes", len(f.Routes)), zap.Int("providers", len(f.Providers)))
	}
	if g.options.Reloaded != nil {
		g.options.Reloaded(f, err)
	}
}

// Watch reads the file at path at each interval of every (0 means 2 s) and puts it in
// place when its contents have changed and were the same twice, until ctx is done. It
// returns ctx's error. It reports each reload as ReloadFile does; a file that cannot be
// put in place is reported once, and tried again when it changes.
//
// It compares the contents, which needs nothing of the file system: a file that is
// replaced by a rename, the swapped links of a Kubernetes ConfigMap and a network share
// are all the same to it.
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
				g.report(path, nil, err)
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
		g.report(path, f, err)
	}
}
