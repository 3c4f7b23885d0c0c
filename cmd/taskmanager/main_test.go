package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// now is a Sunday in Berlin's winter.
func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// runWith calls the program's main function.
func runWith(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs, now)
	return code, out.String(), errs.String()
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		stdin  string
		code   int
		stdout string // the whole of it
		stderr string // a part of it
	}{
		{
			name: "next instants", args: []string{"next", "-n", "2", "cron 0 0 9 * * MON-FRI tz=Asia/Shanghai"},
			stdout: "2026-03-02T09:00:00+08:00\n2026-03-03T09:00:00+08:00\n",
		},
		{
			name: "next of words, flags anywhere", args: []string{"next", "-tz", "America/New_York", "30", "2", "*", "*", "*", "-n=2", "-from", "2026-03-07T08:00:00Z"},
			stdout: "2026-03-09T02:30:00-04:00\n2026-03-10T02:30:00-04:00\n",
		},
		{
			name: "next says why there are few", args: []string{"next", "once 2026-10-01T08:00:00+08:00"},
			stdout: "2026-10-01T08:00:00+08:00\nno more: the one instant, 2026-10-01T08:00:00+08:00, is past\n",
		},
		{
			name: "next of a run count", args: []string{"next", "every 1h x2"},
			stdout: "2026-03-01T13:00:00Z\n2026-03-01T14:00:00Z\nno more: the schedule has no more runs\n",
		},
		{
			name: "next of nothing", args: []string{"next", "0 0 30 2 *"}, code: exitBad,
			stdout: "no more: the expression never fires: no date matches it\n",
		},
		{name: "next of a calendar", args: []string{"next", "0 0 * * * calendar=x"}, code: exitBad,
			stdout: "no more: the calendar \"x\" is not resolved\n"},
		{name: "next of garbage", args: []string{"next", "0 25 * * *"}, code: exitUsage, stderr: `hour: "25" at offset 2`},
		{name: "next without a schedule", args: []string{"next"}, code: exitUsage, stderr: "no schedule is given"},
		{name: "next of none", args: []string{"next", "-n", "0", "@daily"}, code: exitUsage, stderr: "want 1 to 100000"},
		{name: "bad instant", args: []string{"next", "-from", "now", "@daily"}, code: exitUsage, stderr: `-from is "now", want an RFC 3339 time like`},
		{name: "two zones", args: []string{"next", "-tz", "UTC", "@daily tz=UTC"}, code: exitUsage, stderr: "given twice"},
		{
			name: "explain", args: []string{"explain", "-from", "2026-03-27T12:00:00Z", "cron 0 30 2 * * * tz=Europe/Berlin"},
			stdout: "cron 0 30 2 * * * tz=Europe/Berlin\n" +
				"At 02:30:00, every day, in Europe/Berlin.\n\n" +
				"Next:\n" +
				"  Sat 2026-03-28 02:30:00 +01:00\n  Mon 2026-03-30 02:30:00 +02:00\n  Tue 2026-03-31 02:30:00 +02:00\n" +
				"  Wed 2026-04-01 02:30:00 +02:00\n  Thu 2026-04-02 02:30:00 +02:00\n\n" +
				"Clock changes this year and the next:\n" +
				"  2026-03-29: the clock in Europe/Berlin goes from 02:00:00 to 03:00:00, 02:30:00 does not exist and does not fire that day; gap=after would fire at 03:00:00 (skipped-time)\n" +
				"  2026-10-25: the clock in Europe/Berlin goes from 03:00:00 to 02:00:00, 02:30:00 is shown twice and fires the first time only; overlap=both would fire both times (repeated-time)\n" +
				"  2027-03-28: the clock in Europe/Berlin goes from 02:00:00 to 03:00:00, 02:30:00 does not exist and does not fire that day; gap=after would fire at 03:00:00 (skipped-time)\n" +
				"  2027-10-31: the clock in Europe/Berlin goes from 03:00:00 to 02:00:00, 02:30:00 is shown twice and fires the first time only; overlap=both would fire both times (repeated-time)\n",
		},
		{
			name: "explain what is over", args: []string{"explain", "0 0 0 1 1 ? 2020"}, code: exitBad,
			stdout: "cron 0 0 0 1 1 ? 2020 tz=UTC\nAt 00:00:00, on day 1, in January, in 2020, in UTC.\n\nNext:\n  none: the expression fires no more before the end of 2099\n\n" +
				"Warnings:\n  fires no more: the last date that matches is past (no-more)\n",
		},
		{name: "explain garbage", args: []string{"explain", "hourly"}, code: exitUsage, stderr: `"hourly"`},
		{name: "convert", args: []string{"convert", "-from", "quartz", "0 0 12 ? * 2-6"}, stdout: "0 0 12 ? * 1-5\n"},
		{name: "convert a crontab's", args: []string{"convert", "-from", "standard", "@weekly"}, stdout: "0 0 * * 0\n"},
		{name: "convert garbage", args: []string{"convert", "-from", "quartz", "0 0 12 * * 2-6"}, code: exitUsage, stderr: "Quartz wants ?"},
		{name: "convert from nowhere", args: []string{"convert", "* * * * *"}, code: exitUsage, stderr: "-from quartz or -from standard"},
		{name: "convert from elsewhere", args: []string{"convert", "-from", "aws", "* * * * *"}, code: exitUsage, stderr: `-from is "aws"`},
		{name: "convert nothing", args: []string{"convert", "-from", "quartz"}, code: exitUsage, stderr: "no expression"},
		{name: "lint a schedule", args: []string{"lint", "0 9 * * MON-FRI"}},
		{
			name: "lint a crontab", args: []string{"lint", "-f", "-"}, code: exitBad,
			stdin: "# jobs\nMAILTO=\"root\"\nCRON_TZ = 'America/New_York'\n\n0 3 * * * /usr/bin/backup --all\n@daily /bin/x\n@reboot /bin/y\n" +
				"30 2 * * MON-SUN\tuser - z\nTZ=UTC 30 2 * * *\nCRON_TZ=UTC\n*/7 * * * * x\nevery 5m\n0 0 3 * * FRIL clean\n",
			stdout: "-:8: warning: 2026-03-08: the clock in America/New_York goes from 02:00:00 to 03:00:00, 02:30:00 does not exist and does not fire that day; gap=after would fire at 03:00:00 (skipped-time)\n" +
				"-:8: warning: 2027-03-14: the clock in America/New_York goes from 02:00:00 to 03:00:00, 02:30:00 does not exist and does not fire that day; gap=after would fire at 03:00:00 (skipped-time)\n" +
				"-:11: warning: minute */7 does not divide evenly: after 56 comes 0 again, a shorter interval (uneven-step)\n",
		},
		{
			name: "lint errors", args: []string{"lint", "-f", "-"}, code: exitUsage,
			stdin:  "0 25 * * * /bin/x\n# - / # ,\n- / # ,\n",
			stdout: "-:1: error: cronsched: hour: \"25\" at offset 2: out of range; want *, a value 0-23, a range a-b, a step */n, a/n or a-b/n, or a list of these\n-:3: error: cronsched: expression: at offset 7: too few fields: want [second] minute hour day-of-month month day-of-week [year]\n",
		},
		{
			name: "lint wrong options", args: []string{"lint", "-f", "-"}, code: exitUsage,
			stdin: "0 3 * * * tz=Mars/City\n0 0 3 * * FRI tz=UTC overlap=twice\n@daily gap=before x\n@daily calender=x\n0 3 * * * home=/ /bin/x\n0 3 * * * 7z a b\n@daily A=b\n0 0 3 * * 1-5x y\n",
			stdout: "-:1: error: cronsched: tz: \"Mars/City\" at offset 13: unknown time zone; want an IANA name, as in tz=Europe/Berlin\n" +
				"-:2: error: cronsched: overlap: \"twice\" at offset 29: want overlap=first or overlap=both\n" +
				"-:3: error: cronsched: gap: \"before\" at offset 11: want gap=skip or gap=after\n" +
				"-:4: error: cronsched: schedule: \"calender=x\" at offset 7: want an option: tz=, gap=, overlap=, start=, end=, calendar= or roll=\n" +
				"-:8: error: cronsched: day-of-week: \"1-5x\" at offset 10: want *, ?, a weekday 0-7 or SUN-SAT (three letters), a range, a step, nL, n#k, or a list of these\n",
		},
		{name: "lint nothing", args: []string{"lint"}, code: exitUsage, stderr: "either -f FILE or a schedule"},
		{name: "lint no file", args: []string{"lint", "-f", "does/not/exist"}, code: exitUsage, stderr: "does/not/exist"},
		{name: "no command", code: exitUsage, stderr: "usage:"},
		{name: "unknown command", args: []string{"nxet"}, code: exitUsage, stderr: `unknown command "nxet"`},
		{name: "unknown flag", args: []string{"next", "-x"}, code: exitUsage, stderr: "-x"},
		{name: "help", args: []string{"help"}, stderr: "convert"},
		{name: "help of a command", args: []string{"lint", "-h"}, stderr: "usage: taskmanager lint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runWith(c.stdin, c.args...)
			if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("run(%q) = %d\nstdout:\n%s\nstderr:\n%s\nwant %d\nstdout:\n%s\nstderr with %q", c.args, code, stdout, stderr, c.code, c.stdout, c.stderr)
			}
		})
	}
}

// TestJSON reads each command's answer back.
func TestJSON(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		path string // of a value in the answer, by keys and indices
		want any
	}{
		{"next", []string{"next", "-json", "-n", "1", "@hourly"}, exitOK, "next.0", "2026-03-01T13:00:00Z"},
		{"next of nothing", []string{"next", "0 0 30 2 *", "-json"}, exitBad, "reason", "the expression never fires: no date matches it"},
		{"explain", []string{"explain", "-json", "0 0 9 1 * MON"}, exitOK, "warnings.0.code", "either-day"},
		{"explain changes", []string{"explain", "-json", "-tz", "Europe/Berlin", "30 2 * * *"}, exitOK, "clockChanges.0.code", "skipped-time"},
		{"convert", []string{"convert", "-json", "-from", "quartz", "0 0 0 ? * L"}, exitOK, "expression", "0 0 0 ? * SAT"},
		{"lint", []string{"lint", "-json", "* * * * * *"}, exitBad, "0.warnings.0.code", "every-second"},
		{"lint an error", []string{"lint", "-json", "x"}, exitUsage, "0.error.field", "schedule"},
		{"an error", []string{"next", "-json", "0 0 * * FOO"}, exitUsage, "error.offset", 8.0},
		{"another error", []string{"next", "-json"}, exitUsage, "error.message", "no schedule is given"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runWith("", c.args...)
			var answer any
			if err := json.Unmarshal([]byte(stdout), &answer); err != nil || stderr != "" || code != c.code {
				t.Fatalf("run(%q) = %d, want %d\n%s%s%v", c.args, code, c.code, stdout, stderr, err)
			}
			for key := range strings.SplitSeq(c.path, ".") {
				switch v := answer.(type) {
				case map[string]any:
					answer = v[key]
				case []any:
					answer = v[key[0]-'0']
				}
			}
			if answer != c.want {
				t.Errorf("run(%q): %s = %v, want %v\n%s", c.args, c.path, answer, c.want, stdout)
			}
		})
	}
}

func TestTheCalendarIsReadFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holidays.ics")
	text := "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20260302\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := runWith("", "next", "-n", "1", "-calendar", "h="+file, "0 9 * * * tz=Asia/Tokyo calendar=h")
	if want := "2026-03-03T09:00:00+09:00\n"; code != exitOK || stdout != want {
		t.Errorf("next = %d, %q, %q, want %q", code, stdout, stderr, want)
	}
	for _, bad := range []string{"h", "=x", "h=", "h=does/not/exist", "h=" + filepath.Dir(file)} {
		if code, stdout, stderr := runWith("", "next", "-calendar", bad, "0 9 * * * calendar=h"); code != exitUsage || stderr == "" {
			t.Errorf("-calendar %s: next = %d, %q, %q, want %d", bad, code, stdout, stderr, exitUsage)
		}
	}
}

func TestLintReadsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crontab")
	if err := os.WriteFile(file, []byte("*/7 * * * * x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := runWith("", "lint", "-f", file)
	if want := file + ":1: warning: minute */7"; code != exitBad || !strings.HasPrefix(stdout, want) {
		t.Errorf("lint -f = %d, %q, want %d, %q…", code, stdout, exitBad, want)
	}
}

func TestLintReadsACrontabAsCronDoes(t *testing.T) {
	for name, crontab := range map[string]string{
		"TZ is the commands'":    "CRON_TZ=Europe/Berlin\nTZ=America/New_York\n30 2 * * * /bin/x\n",
		"in any order":           "TZ=America/New_York\nCRON_TZ=Europe/Berlin\n30 2 * * * /bin/x\n",
		"TZ where there is none": "# zone\nTZ=Europe/Berlin\n30 2 * * * /bin/x\n",
		"a byte order mark":      "\ufeffCRON_TZ=Europe/Berlin\nevery\t5m\n30 2 * * * /bin/x\n",
	} {
		code, stdout, stderr := runWith(crontab, "lint", "-f", "-")
		if !strings.HasPrefix(stdout, "-:3: warning: 2026-03-29: the clock in Europe/Berlin") || strings.Contains(stdout, "New_York") {
			t.Errorf("%s: %d, %s%s", name, code, stdout, stderr)
		}
	}
}
