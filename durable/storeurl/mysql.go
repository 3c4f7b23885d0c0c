package storeurl

import (
	"cmp"
	"database/sql"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

func mysqlTarget(u *url.URL) (target, error) {
	t := target{name: nameOf(u), dialect: sqlstore.MySQL(), secrets: secretsOf(u)}
	t.connect = func() (*sql.DB, *pgnotify.Waker, error) {
		config, err := mysqlConfig(u)
		if err != nil {
			return nil, nil, err
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, nil, err
		}
		return limited(sql.OpenDB(connector)), nil, nil
	}
	return t, nil
}

// mysqlConfig has the driver read its parameters, and adds what the URL says.
func mysqlConfig(u *url.URL) (*mysql.Config, error) {
	query := u.Query()
	if !query.Has("interpolateParams") {
		query.Set("interpolateParams", "true") // saves round trips
	}
	if !query.Has("timeout") {
		query.Set("timeout", connectTimeout.String())
	}
	// The address with them: it is whom a certificate has to be of.
	address := net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306"))
	config, err := mysql.ParseDSN("tcp(" + address + ")/?" + query.Encode())
	if err != nil {
		return nil, err
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	return config, nil
}
