package main

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
)

const leaders = 3

// A leaderboard is the best players, as of its last refresh.
type leaderboard struct {
	world  *world
	server *server
	top    atomic.Pointer[[]player]
}

// refresh is the task that finds the leaders anew, and tells everybody.
func (b *leaderboard) refresh(context.Context) error {
	players := b.world.state().Players
	slices.SortFunc(players, func(p, q player) int {
		return cmp.Or(cmp.Compare(q.Score, p.Score), cmp.Compare(p.ID, q.ID))
	})
	top := players[:min(leaders, len(players))]
	b.top.Store(&top)
	b.server.broadcastTop(top)
	return nil
}

// leader is the first of them, if there is one.
func (b *leaderboard) leader() (player, bool) {
	top := b.top.Load()
	if top == nil || len(*top) == 0 {
		return player{}, false
	}
	return (*top)[0], true
}
