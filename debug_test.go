package taskmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"go/build"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// debugGet asks the handler, with an Accept header if there is one.
func debugGet(m *taskmanager.TaskManager, query string, accept ...string) *httptest.ResponseRecorder {
	return debugAsk(m, http.MethodGet, query, accept...)
}

func debugAsk(m *taskmanager.TaskManager, method, query string, accept ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/debug/tasks"+query, nil)
	for _, a := range accept {
		r.Header.Add("Accept", a)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	return w
}

// listed are the names in the answer to a query, in order, and how many are left
// out.
func listed(t *testing.T, m *taskmanager.TaskManager, query string) (names []string, omitted int) {
	t.Helper()
	w := debugGet(m, query+"&format=json")
	var r jsonReport
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d, %v: %s", query, w.Code, err, w.Body)
	}
	for _, task := range r.Tasks {
		names = append(names, task.Name)
	}
	return names, r.Omitted
}

func TestHandlerAnswersInTheFormatAskedFor(t *testing.T) {
	m, _ := reportedManager(t)
	for _, c := range []struct {
		query  string
		accept []string
		want   string
	}{
		{"", nil, "text/plain; charset=utf-8"},
		{"", []string{"*/*"}, "text/plain; charset=utf-8"},
		{"", []string{"application/json"}, "application/json"},
		{"", []string{"image/png", "application/json;q=0.5"}, "application/json"},
		{"", []string{"application/json;q=0, text/html;q=0.1"}, "text/html; charset=utf-8"},
		{"", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "text/html; charset=utf-8"},
		{"", []string{"text/html;q=bad,,;", "text/plain"}, "text/plain; charset=utf-8"},
		{"?format=json", []string{"text/html"}, "application/json"},
		{"?format=html", nil, "text/html; charset=utf-8"},
		{"?format=text", []string{"application/json"}, "text/plain; charset=utf-8"},
		{"?task=flush", []string{"application/json"}, "application/json"},
	} {
		w := debugGet(m, c.query, c.accept...)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != c.want {
			t.Errorf("GET %s, Accept %q: %d %s, want %s", c.query, c.accept, w.Code, got, c.want)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: headers %v", c.query, w.Header())
		}
	}
	if got, want := debugGet(m, "").Body.String(), m.Report().String(); got != want {
		t.Errorf("text is\n%s\nwant the report\n%s", got, want)
	}
}

func TestHandlerOnlyReads(t *testing.T) {
	m, _ := reportedManager(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		w := debugAsk(m, method, "")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, query := range []string{"", "?format=html", "?task=flush&format=json"} {
		head, full := debugAsk(m, http.MethodHead, query), debugGet(m, query)
		if head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("Content-Type") != full.Header().Get("Content-Type") {
			t.Errorf("HEAD %s: %d with %d bytes, %v", query, head.Code, head.Body.Len(), head.Header())
		}
	}
}

func TestHandlerRefusesWhatItDoesNotUnderstand(t *testing.T) {
	m, _ := reportedManager(t)
	for _, c := range []struct {
		query string
		code  int
		says  string
	}{
		{"?format=xml", 400, `format="xml": want text, json or html`},
		{"?sort=color", 400, `sort="color": want a column: name, tag, schedule, state, `},
		{"?order=up", 400, `order="up": want asc or desc`},
		{"?state=asleep", 400, `state="asleep": want one of scheduled, running, `},
		{"?limit=0", 400, `limit="0": want a number from 1 to 100000`},
		{"?limit=100001", 400, `limit="100001"`},
		{"?limit=99999999999999999999", 400, `limit="99999999999999999999"`},
		{"?refresh=-1", 400, `refresh="-1": want a number from 0 to 3600`},
		{"?limit=x&refresh=y", 400, "limit=\"x\": want a number from 1 to 100000\nrefresh=\"y\""},
		{"?task=nobody", 404, `there is no live task "nobody"`},
		{"?a=%zz", 400, "invalid URL escape"},
		{"?task=%3Cscript%3E", 404, `there is no live task "<script>"`},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := debugAsk(m, method, c.query)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s %s: %d %q, want %d %q", method, c.query, w.Code, w.Body, c.code, c.says)
			}
			if got := w.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("%s %s: the error is %s", method, c.query, got)
			}
		}
	}
}

func TestHandlerFiltersAndSorts(t *testing.T) {
	m, _ := reportedManager(t)
	for _, c := range []struct{ query, want string }{
		{"?", "by hand, flush, heartbeat, idle, nightly, stuck, upload"},
		{"?sort=name&order=desc", "upload, stuck, nightly, idle, heartbeat, flush, by hand"},
		{"?tag=net", "heartbeat, upload"},
		{"?tag=nothing", ""},
		{"?tag=&q=", "by hand, flush, heartbeat, idle, nightly, stuck, upload"},
		{"?state=running", "stuck"},
		{"?state=backing+off", "upload"},
		{"?state=scheduled&tag=net", "heartbeat"},
		{"?q=H", "by hand, flush, heartbeat, nightly"},
		{"?q=net", "heartbeat, upload"}, // in the tag
		{"?q=a.b", ""},
		{"?sort=tag", "by hand, flush, idle, nightly, stuck, heartbeat, upload"},
		{"?sort=schedule", "heartbeat, stuck, flush, upload, idle, nightly, by hand"},
		{"?sort=state", "by hand, flush, heartbeat, nightly, stuck, idle, upload"},
		{"?sort=runs&order=desc&limit=3", "heartbeat, flush, stuck"},
		{"?sort=failures&order=desc&limit=1", "upload"},
		{"?sort=skipped&order=desc&limit=1", "stuck"},
		{"?sort=missed", "by hand, flush, heartbeat, idle, nightly, stuck, upload"},
		{"?sort=inflight&order=desc&limit=1", "stuck"},
		{"?sort=last&order=desc&limit=1", "flush"},
		{"?sort=p99&order=desc&limit=1", "flush"},
		{"?sort=late&limit=1", "by hand"},
		{"?sort=next", "heartbeat, stuck, flush, upload, nightly, by hand, idle"},
		{"?sort=error&order=desc&limit=1", "upload"},
	} {
		names, _ := listed(t, m, c.query)
		if got := strings.Join(names, ", "); got != c.want {
			t.Errorf("GET %s lists %s, want %s", c.query, got, c.want)
		}
	}
}

func TestHandlerSortsManyTasksBeforeItCuts(t *testing.T) {
	const n = 100_000
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	for i := range n {
		// the further on, the sooner due
		if _, err := m.ScheduleRecurring(fmt.Sprint("task ", i), time.Hour-time.Duration(i)*time.Millisecond, succeeds, taskmanager.WithJitter(0)); err != nil {
			t.Fatal(err)
		}
	}
	clk.Advance(time.Second)
	for _, c := range []struct {
		query   string
		n       int
		first   string
		omitted int
	}{
		{"?sort=next", 1000, "task 99999", n - 1000},
		{"?sort=next&order=desc&limit=10", 10, "task 0", n - 10},
		{"?sort=schedule&limit=5", 5, "task 99999", n - 5},
		{"?q=+9999&limit=100", 11, "task 9999", 0},
		{"?q=+9999&limit=11", 11, "task 9999", 0},
		{"?q=+9999&limit=4", 4, "task 9999", 7},
	} {
		names, omitted := listed(t, m, c.query)
		if len(names) != c.n || names[0] != c.first || omitted != c.omitted {
			t.Errorf("GET %s lists %d from %s, omits %d; want %d from %s, omits %d", c.query, len(names), names[0], omitted, c.n, c.first, c.omitted)
		}
	}
	if page := debugGet(m, "?format=html&limit=2").Body.String(); !strings.Contains(page, "… and 99998 more") || strings.Count(page, "<tr") != 3 {
		t.Errorf("the page is\n%s", page)
	}
}

func TestThePageRefreshesItselfAndSortsByLinks(t *testing.T) {
	m, _ := reportedManager(t)
	for query, want := range map[string][]string{
		"?format=html": {`<meta http-equiv="refresh" content="5">`, `href="?format=html&amp;order=desc&amp;sort=name">name ▲<`, `href="?format=html&amp;order=asc&amp;sort=runs">runs<`, `keep still`},
		"?format=html&sort=runs&order=desc&tag=net": {`href="?format=html&amp;order=asc&amp;sort=runs&amp;tag=net">runs ▼<`, `<input type="hidden" name="sort" value="runs">`, `<tr class="backing-off">`},
		"?format=html&refresh=60":                   {`content="60"`},
		"?format=html&state=backing+off":            {`<option selected>backing off</option>`},
		"?format=html&task=upload":                  {`<pre>task &#34;upload&#34;, every 10s: backing off`, `href="?format=html">all tasks<`, `content="5"`},
	} {
		page := debugGet(m, query).Body.String()
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Errorf("GET %s has no %s:\n%s", query, w, page)
			}
		}
	}
	still := debugGet(m, "?format=html&refresh=0").Body.String()
	if strings.Contains(still, "http-equiv") || strings.Contains(still, "<script") || strings.Contains(still, "keep still") {
		t.Errorf("the page that is to keep still is\n%s", still)
	}
}

func TestThePageEscapesEverything(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	const evil = `"><script>alert('x')</script>&<img src=x onerror=y> javascript:z`
	h, err := m.ScheduleRecurring(evil, time.Second, func(context.Context) error { return errors.New(evil) },
		taskmanager.WithJitter(0), taskmanager.WithTag(evil))
	if err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Second)
	v := url.Values{"format": {"html"}, "q": {evil}, "tag": {evil}, "x": {evil}}
	for _, query := range []string{"?format=html", "?" + v.Encode(), "?format=html&task=" + url.QueryEscape(evil)} {
		w := debugGet(m, query)
		page := w.Body.String()
		for _, raw := range []string{"<script", "<img", `"><s`} {
			if strings.Contains(page, raw) {
				t.Errorf("GET %s has %s:\n%s", query, raw, page)
			}
		}
		if !strings.Contains(page, "&lt;script&gt;") {
			t.Errorf("GET %s does not show the name:\n%s", query, page)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("Content-Security-Policy is %q", csp)
		}
	}
	// the link in the table leads to the task
	_, href, _ := strings.Cut(debugGet(m, "?format=html").Body.String(), `<td><a href="`)
	href, _, _ = strings.Cut(href, `"`)
	detail := debugGet(m, html.UnescapeString(href))
	if detail.Code != http.StatusOK || !strings.Contains(detail.Body.String(), "backs off") {
		t.Errorf("GET %s: %d\n%s", href, detail.Code, detail.Body)
	}
	h.Stop()
}

func TestOneTaskInDetail(t *testing.T) {
	m, _ := reportedManager(t)
	h, _ := m.Lookup("upload")
	const figures = `
runs        1: 0 ok, 1 failed (0 timed out, 0 panicked, 1 in a row), 0 cancelled, 0 in flight
ticks       1: 1 ran, skipped 0 still running, 0 backing off, 0 over a limit, 0 paused; 0 missed, 0 coalesced, 0 dropped, 0 pending
last run    2026-01-01 00:00:10 UTC, the last to end took 0s
took        p50 0s, p90 0s, p99 0s, max 0s
late        p50 0s, p90 0s, p99 0s, max 0s
last error  2026-01-01 00:00:10 UTC: disk full
`
	if got, want := debugGet(m, "?task=upload").Body.String(), h.Explain()+figures; got != want {
		t.Errorf("GET ?task=upload is\n%s\nwant\n%s", got, want)
	}
	var got struct {
		Task    struct{ Name, LastError string }
		Explain string
	}
	if err := json.Unmarshal(debugGet(m, "?task=upload&format=json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Task.Name != "upload" || got.Task.LastError != "disk full" || got.Explain != h.Explain() {
		t.Errorf("GET ?task=upload&format=json is %+v", got)
	}
}

func TestHandlerWorksAfterShutdownAndUnderAnyPath(t *testing.T) {
	m, clk := reportedManager(t)
	clk.Close(m)
	mux := http.NewServeMux()
	mux.Handle("/some/where", m.Handler())
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/some/where?format=html", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), " 0 live tasks, ") || strings.Contains(w.Body.String(), `href="/`) {
		t.Errorf("GET: %d\n%s", w.Code, w.Body)
	}
}

func TestExpvarHasTheTotals(t *testing.T) {
	m, _ := reportedManager(t)
	var v expvar.Var = m.Expvar()
	var got taskmanager.Totals
	if err := json.Unmarshal([]byte(v.String()), &got); err != nil || got != m.Totals() {
		t.Errorf("Expvar() = %s (%v), want %+v", v, err, m.Totals())
	}
	if len(v.String()) > 1000 {
		t.Errorf("Expvar() has %d bytes", len(v.String()))
	}
}

func TestTheLibraryAddsNoHandlerOfItsOwn(t *testing.T) {
	// Package expvar does when it is linked in, as it is into this test; so look at
	// what the library itself imports.
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(p.Imports, "expvar") {
		t.Error("the root package imports expvar, which serves /debug/vars to whoever asks")
	}
}
