// Package pgnotify carries the hints of durable schedulers through PostgreSQL's LISTEN
// and NOTIFY: a durable.Waker.
//
// It has connections of its own, one to listen and one to notify, so that it takes
// none from the store's pool. It needs a direct connection: a pooler in transaction
// mode does not pass notifications on.
package pgnotify
