package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// parse understands a URL. What it says of one that it does not understand has no
// part of it that could be a password's.
func parse(text string) (target, error) {
	if text == "" {
		return target{}, errors.New("storeurl: no URL")
	}
	scheme, rest, found := strings.Cut(text, ":")
	if !found || len(scheme) < 2 || strings.ContainsAny(scheme, `/\.@?=`) { // C:\jobs.db is a path
		if looksLikeDSN(text) {
			return target{}, errors.New("storeurl: that is a driver's data source name: want sqlite:FILE, postgres://… or mysql://…")
		}
		return sqliteTarget(text, "")
	}
	switch scheme {
	case "sqlite", "sqlite3", "file":
		file, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
		return sqliteTarget(file, query)
	case "postgres", "postgresql", "mysql", "mariadb":
	default:
		return target{}, fmt.Errorf("storeurl: unknown scheme %q: want sqlite:FILE, postgres://… or mysql://…", scheme)
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || strings.Contains(u.Path, "@") { // of a password with a "/"
		return target{}, fmt.Errorf("storeurl: the %s URL cannot be read: want %[1]s://user:password@host:port/database, special characters in the password as in @ = %%40", scheme)
	}
	if strings.HasPrefix(scheme, "postgres") {
		return postgresTarget(text, u)
	}
	return mysqlTarget(u)
}

// looksLikeDSN knows data source names that would otherwise become a file's name.
func looksLikeDSN(text string) bool {
	for _, part := range []string{"@tcp(", "@unix(", "@/", "dbname=", "password=", "://"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// nameOf is the URL without password and parameters.
func nameOf(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		shown.User = url.User(name)
	}
	return shown.String()
}

// secretsOf are the passwords in a URL, as they are and as they are written.
func secretsOf(u *url.URL) []string {
	var all []string
	if password, ok := u.User.Password(); ok {
		all = append(all, password)
		_, written, _ := strings.Cut(u.User.String(), ":")
		all = append(all, written)
	}
	for key, values := range u.Query() {
		if strings.Contains(strings.ToLower(key), "pass") {
			all = append(all, values...)
		}
	}
	return all
}

// hide takes passwords out of an error: as a rule drivers do not tell them.
func hide(err error, secrets []string) error {
	text := err.Error()
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "xxxxx")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
