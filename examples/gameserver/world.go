package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
)

const (
	worldSize = 128 // cells along each edge; who leaves on one side enters on the other
	coinCount = 400
	speed     = 12.0 // cells a second
)

// A world is a square with coins in it, and players who collect them. It moves by
// step only, so how it goes on does not depend on how long a step takes.
type world struct {
	// mu guards the fields below. It is held for computing only, never for IO.
	mu      sync.Mutex
	tick    int64
	players []player // in order of ID
	lastID  uint64
	coins   map[cell]struct{}
	random  *rand.Rand
}

// A player is where one of them stands. It is a value: copies can be handed out.
type player struct {
	ID    uint64  `json:"id"`
	Name  string  `json:"name"`
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	DX    int     `json:"dx"` // -1, 0 or 1
	DY    int     `json:"dy"`
	Score int     `json:"score"`
}

type cell struct{ x, y int }

// A worldState is a copy of the world, and the form that it is saved in.
type worldState struct {
	Tick    int64    `json:"tick"`
	Players []player `json:"players"`
}

func newWorld() *world {
	w := &world{coins: map[cell]struct{}{}, random: rand.New(rand.NewPCG(1, 2))}
	for range coinCount {
		w.dropCoinLocked()
	}
	return w
}

func (w *world) dropCoinLocked() {
	for {
		at := cell{w.random.IntN(worldSize), w.random.IntN(worldSize)}
		if _, taken := w.coins[at]; !taken {
			w.coins[at] = struct{}{}
			return
		}
	}
}

// join adds a player at a random place and returns their ID.
func (w *world) join(name string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastID++
	w.players = append(w.players, player{
		ID:   w.lastID,
		Name: name,
		X:    w.random.Float64() * worldSize,
		Y:    w.random.Float64() * worldSize,
	})
	return w.lastID
}

func (w *world) leave(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := find(w.players, id); ok {
		w.players = slices.Delete(w.players, i, i+1)
	}
}

func (w *world) steer(id uint64, dx, dy int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := find(w.players, id); ok {
		w.players[i].DX, w.players[i].DY = dx, dy
	}
}

// find tells where the player stands in a list in order of ID.
func find(players []player, id uint64) (int, bool) {
	return slices.BinarySearchFunc(players, id, func(p player, id uint64) int { return cmp.Compare(p.ID, id) })
}

// step advances the world by 1/tickRate of a second.
func (w *world) step(tick int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick = tick
	for i := range w.players {
		p := &w.players[i]
		p.X = wrap(p.X + float64(p.DX)*speed/tickRate)
		p.Y = wrap(p.Y + float64(p.DY)*speed/tickRate)
		at := cell{int(p.X), int(p.Y)}
		if _, found := w.coins[at]; found {
			p.Score++
			delete(w.coins, at)
			w.dropCoinLocked()
		}
	}
}

// wrap brings a coordinate back into the world that one step has led out of.
func wrap(x float64) float64 {
	switch {
	case x < 0:
		x += worldSize
	case x >= worldSize:
		x -= worldSize
	}
	return min(max(x, 0), worldSize-1e-9) // rounding may have led to the edge
}

// state copies the world, so that slow work can go on without holding it up.
func (w *world) state() worldState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return worldState{Tick: w.tick, Players: slices.Clone(w.players)}
}

// size is the number of players.
func (w *world) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.players)
}
