// Package cronsched answers one question: given a schedule and an instant,
// when next? It has no goroutine, no timer and no store, reads no clock, and
// depends on the standard library only.
//
// A [Schedule] is one of four kinds, with an optional window and an optional
// calendar. Make it from its text with [Parse], or in code with [Manual],
// [Every], [Cron] and [Once]:
//
//	manual
//	every 00:10:00 x5
//	cron 0 0 9 * * MON-FRI tz=Asia/Shanghai
//	cron 0 0 22 L * ? tz=UTC start=2026-01-01T00:00:00Z end=2027-01-01T00:00:00Z calendar=holidays
//	once 2026-10-01T08:00:00+08:00
//
// An [Expression] is a cron expression alone; [ParseCron] makes it. Both give
// Next, Prev, Upcoming, All, Describe and Lint. Both are immutable and safe for
// concurrent use, and Next, Prev and Matches do not allocate.
//
// # Schedules
//
//	manual           never fires by itself
//	every D [xN]     D after the previous run completed; N runs in total, else without end
//	cron EXPR        when the expression matches what the wall clock shows
//	once T           at the instant T, one time
//
// D is [d.]hh:mm:ss with an optional fraction of a second, or a Go duration
// such as 10m. T is an RFC 3339 instant. Options follow in any order:
//
//	tz=ZONE          cron: the IANA zone of the wall clock; UTC if not given
//	gap=skip|after   cron: what becomes of skipped wall times; skip if not given
//	overlap=first|both  cron: what becomes of repeated wall times; first if not given
//	start=T          nothing fires before T; the first run of an every is at T + D
//	end=T            nothing fires after T
//	calendar=NAME    instants that the calendar excludes are left out
//	roll=next|previous  instead, they move to the nearest following (preceding)
//	                 day on which the same wall time is not excluded, at most 366
//	                 days away; those that become equal are one
//
// The process's own zone is never used. A schedule that names a calendar has no
// Next until [Schedule.Resolve] binds it. [Schedule.String] gives a canonical
// text, which Parse reads back to the same schedule; so do MarshalText and
// UnmarshalText, and with them JSON, flags and configuration files.
//
// Parse also reads what other Go libraries have in their configurations: an
// expression alone, a leading CRON_TZ=ZONE or TZ=ZONE, @yearly, @annually,
// @monthly, @weekly, @daily, @midnight, @hourly, and @every D, which counts
// from the end of a run here.
//
// # Cron expressions
//
// Fields are separated by spaces and tabs.
//
//	5 fields    minute hour day-of-month month day-of-week, at second 0
//	6 fields    second minute hour day-of-month month day-of-week
//	7 fields    second minute hour day-of-month month day-of-week year
//
//	field         values                items of its own
//	second        0-59
//	minute        0-59
//	hour          0-23
//	day-of-month  1-31                  ?  L  L-n  nW  LW
//	month         1-12 or JAN-DEC
//	day-of-week   0-7 or SUN-SAT        ?  nL  n#k
//	year          1970-2099
//
//	*        every value
//	?        the same as *
//	a        a value; names in any case wherever a number may stand
//	a-b      a range, upwards
//	*/n      every n-th value, from the field's first
//	a/n      every n-th value from a to the field's last
//	a-b/n    every n-th value of the range
//	x,y      a list: what any item matches
//	L        the last day of the month
//	L-n      n days before the last, n = 1-30
//	nW       the Monday to Friday day nearest to day n, within the month; no day
//	         if the month has no day n
//	LW       the last Monday to Friday day of the month
//	nL       the last weekday n of the month: 5L or FRIL is the last Friday
//	n#k      the k-th weekday n of the month, k = 1-5: FRI#2 is the second Friday
//
// The fine points:
//
//   - Weekdays count from 0 for Sunday to 6 for Saturday, 7 is Sunday too.
//     Quartz counts from 1; names mean the same in both.
//   - SUN at the end of a range that starts on MON to SAT is 7, so MON-SUN and
//     FRI-SUN are ranges. a/n in day-of-week ends with 6, as */n does.
//   - If day-of-month and day-of-week are both restricted, a day fires that
//     matches either. A field is restricted unless it is exactly * or ?, so */2
//     and *,5 are restricted.
//   - ? stands alone; * may stand in a list.
//   - A step larger than the field is fine, it leaves the first value. Leading
//     zeros are fine.
//   - The years 1970 to 2099 go by the wall clock; a year step counts from 1970.
//
// What is not listed here is an error, always a [ParseError]: reversed ranges,
// full names, L alone in day-of-week, H, L-3W. [ParseQuartz] and
// [ParseStandard] read the dialects of Quartz and of POSIX and Vixie cron into
// the same Expression.
//
// # Clock changes
//
// An expression matches what the wall clock of its location shows.
//
//   - A wall time that a forward change skips does not fire that day. With
//     gap=after, all those of one gap fire once together, at the first instant
//     after it.
//   - A wall time that a backward change repeats fires the first time only, also
//     for an expression of every minute. With overlap=both it fires both times:
//     what an hourly job wants, else two real hours pass without it.
//   - L, FRIL and FRI#5 name days of the calendar: if the zone skips such a day
//     it does not fire.
//
// Next(t) is the earliest instant strictly after t, in whole seconds, whatever
// fraction t has. The search ends with 2099-12-31 on the wall clock, and is
// bounded for every expression: one that can never match, such as
// "0 0 30 2 *", is known as such when it is parsed, and Lint says so.
//
// # Calendars
//
// A [Calendar] says whether an instant is excluded. All of this package's tell
// how long their answer holds as well ([Spanner]), so that a search jumps over
// weeks of holidays. After 10,000 excluded candidates in a row there is no next
// instant; a stretch that is jumped over counts as one. [Schedule.Reason] says
// in words why there is none.
//
//	HolidayCalendar    whole days
//	WeeklyCalendar     weekdays
//	DailyCalendar      a part of each day
//	CronCalendar       the seconds that match an expression
//	CompositeCalendar  what any of several calendars excludes
//	InvertCalendar     what another calendar does not exclude
//
// The modules cronsched/ics and cronsched/businesscal make calendars of
// iCalendar files and of github.com/rickar/cal/v2 business calendars.
//
// # Deliberate differences
//
// From the systems that this grammar is drawn from: zones have IANA names only,
// Windows ids are errors. The search runs to 2099 instead of a few years ahead.
// Reversed ranges stay errors, except those that end with SUN; Quartz wraps them
// around. A weekday's number counts from 0 as in crontab, not from 1 as in
// Quartz. @every is a fixed delay. Where Vixie cron wants both day fields to
// match, because one is */n, an expression here takes either, and ParseStandard
// refuses to translate it.
package cronsched
