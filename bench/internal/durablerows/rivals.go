package durablerows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// Kind makes the payload River's arguments.
func (args) Kind() string { return "bench" }

// Its driver for PostgreSQL works on pgx's own pool, that for SQLite on database/sql.

func riverPostgres(ctx context.Context, d drain) (_ *backlog, err error) {
	p, err := newPlace(ctx, postgres)
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, p.drop)
	config, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	db, err := p.open(2)
	if err != nil {
		pool.Close()
		return nil, err
	}
	release := func() error {
		pool.Close()
		return errors.Join(db.Close(), p.drop())
	}
	return riverBacklog[pgx.Tx](ctx, riverpgxv5.New(pool), p, db, d, release)
}

func riverSQLite(ctx context.Context, d drain) (_ *backlog, err error) {
	p, err := newPlace(ctx, sqlite)
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, p.drop)
	db, err := p.open(1)
	if err != nil {
		return nil, err
	}
	release := func() error { return errors.Join(db.Close(), p.drop()) }
	return riverBacklog[*sql.Tx](ctx, riversqlite.New(db), p, db, d, release)
}

// riverWorkers and the intervals are those of River's own benchmark
// (cmd/river/riverbench), which says that they do much better than the defaults. 500
// workers did worse here, too.
const riverWorkers = 2000

func riverBacklog[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], p *place, db *sql.DB, d drain, release func() error) (*backlog, error) {
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	var handled atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[args]) error {
		handled.Add(1)
		return nil
	}))
	client, err := river.NewClient(driver, &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers: workers, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	for n := d.jobs; n > 0; n -= perEdit {
		params := make([]river.InsertManyParams, min(n, perEdit))
		for i := range params {
			params[i].Args = args{X: 1}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return nil, err
		}
	}
	if err := p.analyze(ctx, db); err != nil {
		return nil, err
	}
	return &backlog{
		start: client.Start, handled: handled.Load, server: p.server,
		done: func(ctx context.Context) (int64, error) {
			return count(ctx, db, "SELECT count(*) FROM river_job WHERE state = 'completed'")
		},
		stop: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return errors.Join(client.StopAndCancel(ctx), release())
		},
	}, nil
}

func redisAddr() string { return env(redisEnv, "127.0.0.1:6379") }

// asynqWorkers is of one server; 16, 50 and 800 did not differ from it by more than
// the noise.
const asynqWorkers = 200

func asynqRedis(ctx context.Context, d drain) (_ *backlog, err error) {
	opt := asynq.RedisClientOpt{Addr: redisAddr()}
	db := redis.NewClient(&redis.Options{Addr: redisAddr(), MaxRetries: -1})
	if err := db.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(unreachable{oneLine(err)}, db.Close())
	}
	queue := fmt.Sprintf("%s%d", placePrefix, rand.Uint32())
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	release := func() error {
		return errors.Join(client.Close(), inspector.Close(), forget(db, queue), db.Close())
	}
	defer closeOnError(&err, release)
	for range d.jobs {
		if _, err := client.Enqueue(asynq.NewTask("bench", []byte(payload)), asynq.Queue(queue)); err != nil {
			return nil, err
		}
	}
	server := asynq.NewServer(opt, asynq.Config{
		Concurrency: asynqWorkers, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
	})
	var handled atomic.Int64
	mux := asynq.NewServeMux()
	mux.HandleFunc("bench", func(context.Context, *asynq.Task) error {
		handled.Add(1)
		return nil
	})
	return &backlog{
		start: func(context.Context) error { return server.Start(mux) }, handled: handled.Load, server: "redis-server",
		done: func(context.Context) (int64, error) {
			info, err := inspector.GetQueueInfo(queue)
			if err != nil {
				return 0, err
			}
			return int64(info.ProcessedTotal), nil
		},
		stop: func() error {
			server.Shutdown()
			return release()
		},
	}, nil
}

// forget deletes all keys of a queue.
func forget(db *redis.Client, queue string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := db.SRem(ctx, "asynq:queues", queue).Err()
	keys := db.Scan(ctx, 0, "asynq:{"+queue+"}*", 1000).Iterator()
	var list []string
	for keys.Next(ctx) {
		if list = append(list, keys.Val()); len(list) == 1000 {
			err = errors.Join(err, db.Unlink(ctx, list...).Err())
			list = nil
		}
	}
	if len(list) > 0 {
		err = errors.Join(err, db.Unlink(ctx, list...).Err())
	}
	return errors.Join(err, keys.Err())
}
