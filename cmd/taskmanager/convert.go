package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

var convertCommand = command{
	name:    "convert",
	args:    "EXPRESSION",
	summary: "rewrite a cron expression of another system",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		from := fs.String("from", "", "the `system`: quartz or standard (POSIX, Vixie cron)")
		return func(c *call, words []string) error { return convert(c, *from, words) }
	},
}

type convertAnswer struct {
	From        string `json:"from"`
	Input       string `json:"input"`
	Expression  string `json:"expression"`
	Description string `json:"description"`
}

func convert(c *call, from string, words []string) error {
	parse := cronsched.ParseQuartz
	switch from {
	case "quartz":
	case "standard":
		parse = cronsched.ParseStandard
	case "":
		return errors.New("want -from quartz or -from standard")
	default:
		return fmt.Errorf("-from is %q, want quartz or standard", from)
	}
	if len(words) == 0 {
		return errors.New("no expression is given")
	}
	input := strings.Join(words, " ")
	e, err := parse(input)
	if err != nil {
		return err
	}
	a := convertAnswer{From: from, Input: input, Expression: e.String(), Description: e.Describe()}
	return c.print(a, a.Expression+"\n")
}
