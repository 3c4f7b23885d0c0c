//go:build race

package durable_test

const simRace = true
