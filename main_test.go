package taskmanager_test

import "log/slog"

var silent = slog.New(slog.DiscardHandler)
