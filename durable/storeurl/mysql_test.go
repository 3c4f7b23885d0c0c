package storeurl

import (
	"net/url"
	"testing"
)

func TestACertificateHasToBeOfTheURLsHost(t *testing.T) {
	for text, want := range map[string]struct {
		address, host string // host is "" if any certificate will do
	}{
		"mysql://u:p@db.example.com:3307/x?tls=true":      {"db.example.com:3307", "db.example.com"},
		"mysql://db.example.com/x?tls=preferred":          {"db.example.com:3306", ""},
		"mysql://db.example.com/x?tls=skip-verify":        {"db.example.com:3306", ""},
		"mysql://db.example.com/?tls=true&timeout=1s":     {"db.example.com:3306", "db.example.com"},
		"mysql://[2001:db8::1]:3307/x?tls=true":           {"[2001:db8::1]:3307", "2001:db8::1"},
		"mysql:///x?tls=true":                             {"127.0.0.1:3306", "127.0.0.1"},
		"mysql://u%2Fx:p%40ss@db.example.com/x?tls=false": {"db.example.com:3306", ""},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		config, err := mysqlConfig(u)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		host := ""
		if c := config.TLS; c != nil && !c.InsecureSkipVerify {
			host = c.ServerName
		}
		if config.Net != "tcp" || config.Addr != want.address || host != want.host {
			t.Errorf("%s is %s %s with a certificate of %q, want tcp %s and %q", text, config.Net, config.Addr, host, want.address, want.host)
		}
	}
}
