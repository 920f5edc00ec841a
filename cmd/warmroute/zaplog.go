package main

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo returns a logger for the packages that want zap's, which writes to log.
func zapTo(log *slog.Logger) *zap.Logger { return zap.New(&slogCore{log: log}) }

// slogCore is a zapcore.Core over a slog.Logger.
type slogCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

var slogLevels = map[zapcore.Level]slog.Level{
	zapcore.DebugLevel: slog.LevelDebug, zapcore.InfoLevel: slog.LevelInfo, zapcore.WarnLevel: slog.LevelWarn,
}

func slogLevel(l zapcore.Level) slog.Level {
	if s, ok := slogLevels[l]; ok {
		return s
	}
	return slog.LevelError
}

// Enabled is zapcore.Core's.
func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), slogLevel(l))
}

// With is zapcore.Core's.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: c.log, fields: slices.Concat(c.fields, fields)}
}

// Check is zapcore.Core's.
func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write is zapcore.Core's.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	var attrs []slog.Attr
	for _, f := range slices.Concat(c.fields, fields) {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		if v, ok := m.Fields[f.Key]; ok {
			attrs = append(attrs, slog.Any(f.Key, v))
		}
	}
	c.log.LogAttrs(context.Background(), slogLevel(e.Level), e.Message, attrs...)
	return nil
}

// Sync is zapcore.Core's.
func (c *slogCore) Sync() error { return nil }
