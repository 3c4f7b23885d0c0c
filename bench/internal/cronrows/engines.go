package cronrows

import (
	"strings"
	"time"

	"github.com/adhocore/gronx"
	"github.com/hashicorp/cronexpr"
	netresearch "github.com/netresearch/go-cron"
	"github.com/reugn/go-quartz/quartz"
	robfig "github.com/robfig/cron/v3"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// A nextFunc returns the instant after t, which is in the expression's zone.
type nextFunc func(t time.Time) time.Time

// An engine is one cron library.
type engine struct {
	name, title, module string
	// lacks lists expressions it does not support.
	lacks []string
	// rewrite puts an expression into its dialect; nil leaves it.
	rewrite func(string) string
	// parse is what is timed as Parse: text to something that can be asked.
	parse func(text string, loc *time.Location) (nextFunc, error)
}

var engines = []engine{
	{
		name: "ours", title: "**cronsched**", module: "github.com/taskmanager-go/taskmanager",
		parse: func(text string, loc *time.Location) (nextFunc, error) {
			e, err := cronsched.ParseCron(text)
			if err != nil {
				return nil, err
			}
			e = e.In(loc)
			return func(t time.Time) time.Time { t, _ = e.Next(t); return t }, nil
		},
	},
	{
		name: "robfig", title: "robfig/cron v3", module: "github.com/robfig/cron/v3",
		lacks: []string{"0 0 22 L * ?"},
		parse: func(text string, _ *time.Location) (nextFunc, error) {
			s, err := robfigParser.Parse(text) // takes the zone from the instant
			if err != nil {
				return nil, err
			}
			return s.Next, nil
		},
	},
	{
		name: "netresearch", title: "netresearch/go-cron", module: "github.com/netresearch/go-cron",
		parse: func(text string, _ *time.Location) (nextFunc, error) {
			s, err := netresearchParser.Parse(text)
			if err != nil {
				return nil, err
			}
			return s.Next, nil
		},
	},
	{
		name: "hashicorp", title: "hashicorp/cronexpr", module: "github.com/hashicorp/cronexpr",
		// To it, six fields are five and a year; seconds need all seven.
		rewrite: func(text string) string {
			if len(strings.Fields(text)) == 6 {
				return text + " *"
			}
			return text
		},
		parse: func(text string, _ *time.Location) (nextFunc, error) {
			e, err := cronexpr.Parse(text)
			if err != nil {
				return nil, err
			}
			return e.Next, nil
		},
	},
	{
		// gronx has nothing to keep: it parses at every call.
		name: "gronx", title: "adhocore/gronx", module: "github.com/adhocore/gronx",
		parse: func(text string, _ *time.Location) (nextFunc, error) {
			if !gronx.IsValid(text) {
				return nil, gronxInvalid
			}
			return func(t time.Time) time.Time {
				t, _ = gronx.NextTickAfter(text, t, false)
				return t
			}, nil
		},
	},
	{
		name: "quartz", title: "go-quartz", module: "github.com/reugn/go-quartz",
		rewrite: func(text string) string { // it always wants seconds
			if len(strings.Fields(text)) == 5 {
				return "0 " + text
			}
			return text
		},
		parse: func(text string, loc *time.Location) (nextFunc, error) {
			c, err := quartz.NewCronTriggerWithLoc(text, loc)
			if err != nil {
				return nil, err
			}
			return func(t time.Time) time.Time {
				ns, err := c.NextFireTime(t.UnixNano())
				if err != nil {
					return time.Time{}
				}
				return time.Unix(0, ns).In(loc)
			}, nil
		},
	},
}

var (
	robfigParser = robfig.NewParser(robfig.SecondOptional | robfig.Minute | robfig.Hour |
		robfig.Dom | robfig.Month | robfig.Dow)
	netresearchParser = netresearch.MustNewParser(netresearch.SecondOptional | netresearch.Minute | netresearch.Hour |
		netresearch.Dom | netresearch.Month | netresearch.Dow | netresearch.Extended)
)

type invalid string

func (i invalid) Error() string { return string(i) }

const gronxInvalid = invalid("gronx: invalid expression")
