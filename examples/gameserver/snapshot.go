package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// snapshotFile is the file to save to, and what to do when all is done: a file of
// our own choosing is removed again.
func snapshotFile(wanted string) (file string, done func() error, err error) {
	if wanted != "" {
		return wanted, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "gameserver-")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "world.json"), func() error { return os.RemoveAll(dir) }, nil
}

// save replaces the file in one step: whoever reads it finds the previous state or
// this one, whole, even if the machine stops half way. If ctx ends before that
// step, the previous state stays.
func save(ctx context.Context, file string, state worldState) error {
	temp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	err = errors.Join(write(temp, state), temp.Close())
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// write brings the state to the disk, not only into the system's cache: a file that
// is renamed before that could be empty after a power cut.
func write(f *os.File, state worldState) error {
	if err := json.NewEncoder(f).Encode(state); err != nil {
		return err
	}
	return f.Sync()
}
