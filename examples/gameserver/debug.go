package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// serveDebug shows the tasks to a browser, or to curl, until ctx ends. They tell
// much about the process: the listener should be on a loopback address.
func serveDebug(ctx context.Context, l net.Listener, m *taskmanager.TaskManager) error {
	mux := http.NewServeMux()
	mux.Handle("/debug/tasks", m.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 2 * time.Second, WriteTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
