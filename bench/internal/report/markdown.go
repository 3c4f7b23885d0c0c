package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

// Markdown writes the tables: the machine, then a table a workload.
func Markdown(w io.Writer, all []row.Workload, set *result.Set, verdicts []check.Verdict) error {
	b := bufio.NewWriter(w)
	heading(b, set)
	group := ""
	for i := range all {
		wl := &all[i]
		if !measured(wl, set) {
			continue
		}
		if wl.Group != group {
			group = wl.Group
			fmt.Fprintf(b, "\n## %s\n", group)
			if wl.Pivot {
				pivot(b, all, group, set)
			}
		}
		if !wl.Pivot {
			table(b, wl, set)
		}
	}
	known := slices.DeleteFunc(slices.Clone(verdicts), func(v check.Verdict) bool { return v.Status == check.Unclear })
	if len(known) > 0 {
		fmt.Fprintf(b, "\n## Bounds\n\n")
		checkTable(b, known)
		if left := len(verdicts) - len(known); left > 0 {
			fmt.Fprintf(b, "\n%d more were not measured in this run.\n", left)
		}
	}
	return b.Flush()
}

// measured reports whether there is a run of the workload.
func measured(w *row.Workload, set *result.Set) bool {
	return slices.ContainsFunc(set.Runs, func(r result.Run) bool { return r.Workload == w.Name })
}

func heading(b io.Writer, set *result.Set) {
	m := set.Machine
	fmt.Fprintf(b, "# Results\n\n")
	fmt.Fprintf(b, "A %s run of %s, %v long, on %s/%s", set.Mode, set.Started.Format("2 January 2006"),
		time.Duration(set.Took*1e9).Round(time.Second), m.OS, m.Arch)
	if m.CPU != "" {
		fmt.Fprintf(b, " (%s)", m.CPU)
	}
	fmt.Fprintf(b, ", %d cores, GOMAXPROCS %d, %s", m.Cores, m.GOMAXPROCS, m.Go)
	if m.Kernel != "" {
		fmt.Fprintf(b, ", kernel %s", m.Kernel)
	}
	fmt.Fprintln(b, ".")
	if set.Interrupted {
		fmt.Fprintf(b, "\n**It was interrupted: what is missing was not run.**\n")
	}
	noise(b, set)
	var versions []string
	for _, mod := range m.Modules {
		if mod.Version != "(devel)" && !strings.HasPrefix(mod.Version, "v0.0.0-000") {
			versions = append(versions, mod.Path+" "+mod.Version)
		}
	}
	if len(versions) > 0 {
		fmt.Fprintf(b, "\nVersions: %s.\n", strings.Join(versions, ", "))
	}
	fmt.Fprintf(b, "\nFigures are medians over repetitions, with the range in brackets where it tells something. \"× ours\" is the median of the ratios within each repetition.\n")
}

func noise(b io.Writer, set *result.Set) {
	foreign, steal, disturbed, known := set.Noise()
	if !known {
		fmt.Fprintf(b, "\nThis system does not tell what else the machine was doing.\n")
		return
	}
	fmt.Fprintf(b, "\nNoise: other processes used %.2f cores (median; at most %.2f), the hypervisor took %.2f (at most %.2f); %d of %d measurements were disturbed by more than %.2f.\n",
		foreign.Median, foreign.Max, steal.Median, steal.Max, disturbed, len(set.Runs), host.Quiet)
}

// table is one workload: a line for each contender.
func table(b io.Writer, w *row.Workload, set *result.Set) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", w.Title, w.About)
	columns := []string{""}
	for _, m := range w.Columns {
		columns = append(columns, m.Title())
	}
	columns = append(columns, "× ours ("+w.Key.Title()+")")
	line(b, columns)
	line(b, rule(len(columns)))
	var notes, left, unasked []string
	for i := range w.Entries {
		e := &w.Entries[i]
		c := result.Cell{Workload: w.Name, Contender: e.Contender}
		runs := set.Of(c)
		switch {
		case e.Skip != "":
			left = append(left, fmt.Sprintf("%s: %s", e.Title, e.Skip))
		case len(runs) == 0:
			unasked = append(unasked, e.Title)
		default:
			entryLine(b, w, e, set)
			notes = append(notes, remarks(e, runs)...)
		}
	}
	list(b, "", notes)
	list(b, "Not run:", left)
	if len(unasked) > 0 {
		fmt.Fprintf(b, "\nNot asked for in this run: %s.\n", strings.Join(unasked, ", "))
	}
}

func entryLine(b io.Writer, w *row.Workload, e *row.Entry, set *result.Set) {
	c := result.Cell{Workload: w.Name, Contender: e.Contender}
	cells := []string{e.Title}
	for _, m := range w.Columns {
		cells = append(cells, format(m, set.Spread(c, m)))
	}
	ratio := set.Ratio(c, result.Cell{Workload: w.Name, Contender: w.Ours}, w.Key)
	line(b, append(cells, times(ratio)))
}

// format is a median, with the range where it is wide enough to be seen.
func format(m row.Metric, s stats.Spread) string {
	text := m.Format(s.Median)
	if lo, hi := m.Format(s.Min), m.Format(s.Max); m.HasSpread() && s.N > 1 && lo != hi {
		text += fmt.Sprintf(" (%s–%s)", lo, hi)
	}
	return text
}

func times(s stats.Spread) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", s.Median)
}

// remarks are the notes and errors of an entry's runs, each once.
func remarks(e *row.Entry, runs []result.Run) []string {
	var out []string
	add := func(s string) {
		if s = e.Title + ": " + s; !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, r := range runs {
		if r.Error != "" {
			add("failed: " + r.Error)
		}
		for _, n := range r.Notes {
			add(n)
		}
	}
	return out
}

// pivot is a whole group in one table: a line for each workload.
func pivot(b io.Writer, all []row.Workload, group string, set *result.Set) {
	var columns []string
	var notes []string
	for i := range all {
		w := &all[i]
		if w.Group != group || !measured(w, set) {
			continue
		}
		if columns == nil {
			fmt.Fprintf(b, "\n%s\n\n", w.About)
			columns = []string{w.Key.Title()}
			for _, e := range w.Entries {
				columns = append(columns, e.Title)
			}
			line(b, columns)
			line(b, rule(len(columns)))
		}
		cells := []string{w.Title}
		for j := range w.Entries {
			text, remark := pivotCell(w, &w.Entries[j], set)
			cells = append(cells, text)
			notes = append(notes, remark...)
		}
		line(b, cells)
	}
	slices.Sort(notes)
	list(b, "", slices.Compact(notes))
}

// pivotCell is the key figure, with the allocations where there are any, and
// a mark where the answers were wrong.
func pivotCell(w *row.Workload, e *row.Entry, set *result.Set) (text string, notes []string) {
	c := result.Cell{Workload: w.Name, Contender: e.Contender}
	runs := set.Of(c)
	if e.Skip != "" {
		return e.Skip, nil
	}
	s := set.Spread(c, w.Key)
	if s.N == 0 {
		text = "–"
	} else {
		text = w.Key.Format(s.Median)
	}
	if a := set.Spread(c, row.AllocsPerOp); a.N > 0 && a.Median > 0 {
		text += fmt.Sprintf(" (%.0f allocs)", a.Median)
	}
	if right := set.Spread(c, row.Agrees); right.N > 0 && right.Median != 1 {
		text += " **wrong**"
	}
	for _, n := range remarks(e, runs) {
		notes = append(notes, w.Title+": "+n)
	}
	return text, notes
}

// Checks writes the bounds as a table.
func Checks(w io.Writer, verdicts []check.Verdict) error {
	b := bufio.NewWriter(w)
	checkTable(b, verdicts)
	return b.Flush()
}

func checkTable(b io.Writer, verdicts []check.Verdict) {
	line(b, []string{"measure", "", "figure", "must", "aim", ""})
	line(b, rule(6))
	last := ""
	for _, v := range verdicts {
		measure := v.Measure
		if measure == last {
			measure = ""
		}
		last = v.Measure
		line(b, []string{measure, v.Label, figure(v), bound(v, v.Must), bound(v, v.Aim), string(v.Status)})
	}
}

func figure(v check.Verdict) string {
	f := v.Spread
	switch {
	case f.N == 0:
		return "–"
	case number(f.Min) == number(f.Max):
		return number(f.Median)
	default:
		return fmt.Sprintf("%s (%s–%s)", number(f.Median), number(f.Min), number(f.Max))
	}
}

func bound(v check.Verdict, x float64) string {
	switch {
	case x != x: // NaN: there is no aim
		return ""
	case v.AtLeast:
		return "≥ " + number(x)
	default:
		return "≤ " + number(x)
	}
}

// number prints with as many decimals as a reader can use.
func number(x float64) string {
	switch {
	case x == float64(int64(x)):
		return fmt.Sprintf("%.0f", x)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 0.9 && x < 1:
		return fmt.Sprintf("%.4f", x)
	case x < 0.01:
		return fmt.Sprintf("%.5f", x)
	default:
		return fmt.Sprintf("%.3f", x)
	}
}

func line(b io.Writer, cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }

func rule(columns int) []string {
	r := slices.Repeat([]string{"--:"}, columns)
	r[0] = "---"
	return r
}

func list(b io.Writer, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintln(b)
	if title != "" {
		fmt.Fprintf(b, "%s\n\n", title)
	}
	for _, it := range items {
		fmt.Fprintf(b, "- %s\n", it)
	}
}
