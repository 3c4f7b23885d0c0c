package taskmanager

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Handler serves the manager's report over HTTP, in the manner of net/http/pprof:
//
//	http.Handle("/debug/tasks", m.Handler())
//
// It shows names and the texts of errors to whoever can reach it, so mount it on a
// loopback port or behind authentication. It only reads (GET and HEAD), works
// under any path, also after Shutdown, and is safe for concurrent use. A request
// takes time in proportion to the number of tasks, and memory to ?limit.
//
// The answer is text, or as the Accept header has it JSON (a Report) or, to
// browsers, HTML: a table that refreshes itself and needs no script. In the query:
//
//	format=text|json|html  instead of Accept
//	sort=COLUMN            name (the default), tag, schedule, state, runs, failures,
//	                       skipped, missed, inflight, last, p99, late, next, error
//	order=asc|desc         asc is the default
//	tag=TAG                only tasks with this tag
//	state=STATE            only tasks in this state: "backing off" is one
//	q=TEXT                 only tasks with this in name or tag, in any case
//	limit=N                at most N tasks, 1 to 100,000: 1,000 is the default; the
//	                       answer says how many are left out
//	refresh=SECONDS        of the HTML table; 5 is the default, 0 keeps it still
//	task=NAME              one live task in detail, with its Handle.Explain
func (m *TaskManager) Handler() http.Handler {
	page := template.Must(template.New("page").Parse(pageHTML))
	return &debugHandler{m: m, page: page}
}

// Expvar is the manager's Totals for package expvar, in JSON of bounded size:
//
//	expvar.Publish("tasks", m.Expvar())
//
// Each time it is read it adds up all tasks, like Totals. Its String method makes
// it an expvar.Var; that package is not imported here, since it adds a handler to
// http.DefaultServeMux in every program that it is linked into.
func (m *TaskManager) Expvar() fmt.Stringer { return totalsVar{m} }

type totalsVar struct{ m *TaskManager }

func (v totalsVar) String() string {
	text, err := json.Marshal(v.m.Totals())
	if err != nil { // it is made of numbers
		return "{}"
	}
	return string(text)
}

const (
	maxLimit       = 100_000
	defaultRefresh = 5    // seconds
	maxRefresh     = 3600 // seconds
)

// A format is how an answer is written.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
	formatHTML format = "html"
)

var mediaTypes = map[string]format{"text/plain": formatText, "application/json": formatJSON, "text/html": formatHTML}

var contentTypes = map[format]string{
	formatText: "text/plain; charset=utf-8",
	formatJSON: "application/json",
	formatHTML: "text/html; charset=utf-8",
}

// accepted is the format that an Accept header asks for most; text if it asks for
// none of ours, or for anything.
func accepted(header []string) format {
	best, most := formatText, 0.0
	for part := range strings.SplitSeq(strings.Join(header, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		f, known := mediaTypes[media]
		if err != nil || !known {
			continue
		}
		weight := 1.0
		if q, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		if weight > most {
			best, most = f, weight
		}
	}
	return best
}

// A request is what a query asks for.
type request struct {
	selection
	values  url.Values
	format  format
	refresh int
	task    string // "": the table
}

// parseRequest reads a query. All that is wrong with it is in the error.
func parseRequest(values url.Values, accept []string) (request, error) {
	r := request{
		selection: selection{column: &columns[0], limit: reportLimit, text: strings.ToLower(values.Get("q"))},
		values:    values, format: accepted(accept), refresh: defaultRefresh, task: values.Get("task"),
	}
	if tag, ok := values["tag"]; ok && tag[0] != "" {
		r.tag = &tag[0]
	}
	var errs []error
	read := func(key, want string, take func(v string) bool) {
		if v := values.Get(key); v != "" && !take(v) {
			errs = append(errs, fmt.Errorf("%s=%q: want %s", key, v, want))
		}
	}
	read("format", "text, json or html", func(v string) bool {
		r.format = format(v)
		return contentTypes[r.format] != ""
	})
	read("sort", "a column: "+columnIDs(), func(v string) bool {
		i := slices.IndexFunc(columns, func(c column) bool { return c.id == v })
		if i >= 0 {
			r.column = &columns[i]
		}
		return i >= 0
	})
	read("order", "asc or desc", func(v string) bool {
		r.desc = v == "desc"
		return r.desc || v == "asc"
	})
	read("state", "one of "+strings.Join(stateNames[:], ", "), func(v string) bool {
		i := slices.Index(stateNames[:], v)
		state := State(max(0, i))
		r.state = &state
		return i >= 0
	})
	number := func(key string, least, most int, into *int) {
		read(key, fmt.Sprintf("a number from %d to %d", least, most), func(v string) bool {
			n, err := strconv.Atoi(v)
			*into = n
			return err == nil && least <= n && n <= most
		})
	}
	number("limit", 1, maxLimit, &r.limit)
	number("refresh", 0, maxRefresh, &r.refresh)
	return r, errors.Join(errs...)
}

func columnIDs() string {
	ids := make([]string, len(columns))
	for i, c := range columns {
		ids[i] = c.id
	}
	return strings.Join(ids, ", ")
}

// href is a link to the same page with some things of the query changed; "" takes
// one away.
func (r *request) href(changes ...string) string {
	values := url.Values{}
	for k, v := range r.values {
		values[k] = v
	}
	for i := 0; i < len(changes); i += 2 {
		if values.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			values.Del(changes[i])
		}
	}
	return "?" + values.Encode()
}

type debugHandler struct {
	m    *TaskManager
	page *template.Template
}

func (h *debugHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Vary", "Accept")
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	values, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r, err := parseRequest(values, req.Header.Values("Accept"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var t *Handle
	if r.task != "" {
		var ok bool
		if t, ok = h.m.Lookup(r.task); !ok {
			http.Error(w, fmt.Sprintf("there is no live task %q", r.task), http.StatusNotFound)
			return
		}
	}
	header.Set("Content-Type", contentTypes[r.format])
	if req.Method == http.MethodHead {
		return
	}
	var body bytes.Buffer // so that a failure in the middle is not half a page
	if t != nil {
		err = h.writeTask(&body, &r, t)
	} else {
		err = h.writeTable(&body, &r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes()) // the client may have gone
}

func (h *debugHandler) writeTable(body *bytes.Buffer, r *request) error {
	report := h.m.report(r.selection)
	switch r.format {
	case formatJSON:
		return writeJSON(body, report)
	case formatHTML:
		return h.page.Execute(body, r.tablePage(&report))
	}
	body.WriteString(report.String())
	return nil
}

func (h *debugHandler) writeTask(body *bytes.Buffer, r *request, t *Handle) error {
	snap, why := t.Snapshot(), t.Explain()
	if r.format == formatJSON {
		return writeJSON(body, struct {
			Task    Snapshot `json:"task"`
			Explain string   `json:"explain"`
		}{snap, why})
	}
	text := why + "\n" + snap.detail()
	if r.format == formatHTML {
		return h.page.Execute(body, page{Title: oneLine(snap.Name, 60), Detail: text, Back: r.href("task", ""), Refresh: r.refresh})
	}
	body.WriteString(text)
	return nil
}

func writeJSON(body *bytes.Buffer, v any) error {
	e := json.NewEncoder(body)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// detail is all the figures of a task, a line each.
func (s *Snapshot) detail() string {
	var b strings.Builder
	line := func(what, form string, args ...any) {
		fmt.Fprintf(&b, "%-12s"+form+"\n", append([]any{what}, args...)...)
	}
	line("runs", "%d: %d ok, %d failed (%d timed out, %d panicked, %d in a row), %d cancelled, %d in flight",
		s.Runs, s.Successes, s.Failures, s.Timeouts, s.Panics, s.ConsecutiveFailures, s.Cancelled, s.InFlight)
	l := &s.Ticks
	line("ticks", "%d: %d ran, skipped %d still running, %d backing off, %d over a limit, %d paused; %d missed, %d coalesced, %d dropped, %d pending",
		l.Due(), l.Ran, l.SkippedRunning, l.SkippedBackoff, l.SkippedLimit, l.SkippedPaused, l.Missed, l.Coalesced, l.Dropped, l.Pending)
	if s.Gaps > 0 {
		line("gaps", "%d, the last from %s to %s", s.Gaps, instantText(s.GapFrom), instantText(s.GapTo))
	}
	if !s.LastRun.IsZero() {
		line("last run", "%s, the last to end took %v", instantText(s.LastRun), s.LastDuration)
	}
	for _, d := range []struct {
		what string
		of   *Distribution
	}{{"took", &s.Duration}, {"late", &s.Lateness}} {
		if d.of.Count > 0 {
			line(d.what, "p50 %v, p90 %v, p99 %v, max %v", d.of.Quantile(0.5), d.of.Quantile(0.9), d.of.Quantile(0.99), d.of.Max)
		}
	}
	if s.LastError != nil {
		line("last error", "%s: %s", instantText(s.LastErrorAt), oneLine(errorText(s.LastError), 1000))
	}
	return b.String()
}

// A page is what the HTML is made from: the table, or one task's detail.
type page struct {
	Title   string
	Refresh int // seconds; 0: never
	Still   string
	Summary string
	Tag     string
	Text    string
	Keep    map[string]string // what else the form sends along
	States  []choice
	Columns []choice
	Rows    []pageRow
	Omitted int

	Detail string
	Back   string
}

// A choice is a column's head, or a state to filter by.
type choice struct {
	Text, Href string
	Chosen     bool
	Number     bool
}

type pageRow struct {
	State string
	Href  string
	Cells []pageCell
}

type pageCell struct {
	Text   string
	Number bool
}

func (r *request) tablePage(report *Report) page {
	p := page{
		Title: "tasks", Refresh: r.refresh, Summary: report.summary(), Omitted: report.Omitted,
		Tag: r.values.Get("tag"), Text: r.values.Get("q"), Keep: map[string]string{},
		Still: r.href("refresh", "0"),
	}
	for _, key := range []string{"format", "sort", "order", "limit", "refresh"} {
		if v := r.values.Get(key); v != "" {
			p.Keep[key] = v
		}
	}
	for i, name := range stateNames {
		p.States = append(p.States, choice{Text: name, Chosen: r.state != nil && *r.state == State(i)})
	}
	for i := range columns {
		c := &columns[i]
		head := choice{Text: c.title, Number: c.number, Chosen: c == r.column}
		order := "asc"
		if head.Chosen && !r.desc {
			order = "desc"
		}
		head.Href = r.href("sort", c.id, "order", order)
		if head.Chosen {
			head.Text += map[bool]string{false: " ▲", true: " ▼"}[r.desc]
		}
		p.Columns = append(p.Columns, head)
	}
	for i := range report.Tasks {
		p.Rows = append(p.Rows, r.tableRow(&report.Tasks[i], report.At))
	}
	return p
}

func (r *request) tableRow(s *Snapshot, now time.Time) pageRow {
	line := pageRow{State: strings.ReplaceAll(s.State.String(), " ", "-"), Href: r.href("task", s.Name)}
	for i := range columns {
		c := &columns[i]
		line.Cells = append(line.Cells, pageCell{cmp.Or(c.cell(s, now), "-"), c.number})
	}
	return line
}

const pageHTML = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title>
{{if .Refresh}}<meta http-equiv="refresh" content="{{.Refresh}}">
{{end}}<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .15em .7em; border-bottom: 1px solid #ddd; white-space: nowrap }
.n { text-align: right }
tr.running td { background: #eef7ee }
tr.backing-off td { background: #fdeeee }
tr.paused td { color: #888 }
</style></head><body>
<h1>{{.Title}}</h1>
{{if .Detail}}<pre>{{.Detail}}</pre>
<p><a href="{{.Back}}">all tasks</a></p>
{{else}}<p>{{.Summary}}</p>
<form method="get">
{{range $k, $v := .Keep}}<input type="hidden" name="{{$k}}" value="{{$v}}">
{{end}}<input name="q" value="{{.Text}}" placeholder="name or tag has">
<input name="tag" value="{{.Tag}}" placeholder="tag is">
<select name="state"><option value="">any state</option>{{range .States}}<option{{if .Chosen}} selected{{end}}>{{.Text}}</option>{{end}}</select>
<button>filter</button>{{if .Refresh}} refreshes every {{.Refresh}} s: <a href="{{.Still}}">keep still</a>{{end}}
</form>
<table><thead><tr>{{range .Columns}}<th{{if .Number}} class="n"{{end}}><a href="{{.Href}}">{{.Text}}</a></th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr class="{{.State}}">{{$href := .Href}}{{range $i, $c := .Cells}}<td{{if $c.Number}} class="n"{{end}}>{{if $i}}{{$c.Text}}{{else}}<a href="{{$href}}">{{$c.Text}}</a>{{end}}</td>{{end}}</tr>
{{end}}</tbody></table>
{{if .Omitted}}<p>… and {{.Omitted}} more</p>
{{end}}{{end}}</body></html>
`
