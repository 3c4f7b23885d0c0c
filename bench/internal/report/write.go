// Package report turns results into JSON, Markdown and charts.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// The files in a results folder, beside the charts.
const (
	JSONFile     = "results.json"
	MarkdownFile = "results.md"
)

// Write puts everything into the folder. Charts for which there are no figures
// are left out, and removed if they are there from before.
func Write(folder string, all []row.Workload, set *result.Set, verdicts []check.Verdict) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var js, md bytes.Buffer
	if err := JSON(&js, set); err != nil {
		return err
	}
	if err := writeFile(folder, JSONFile, js.Bytes()); err != nil {
		return err
	}
	drawn, err := drawAll(folder, all, set)
	if err != nil {
		return err
	}
	if err := Markdown(&md, all, set, verdicts); err != nil {
		return err
	}
	for _, c := range drawn {
		fmt.Fprintf(&md, "\n![%s](%s)\n", c.title, c.file)
	}
	return writeFile(folder, MarkdownFile, md.Bytes())
}

func writeFile(folder, name string, b []byte) error {
	return os.WriteFile(filepath.Join(folder, name), b, 0o644)
}

// JSON writes the set with every single run in it.
func JSON(w io.Writer, set *result.Set) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(set)
}
