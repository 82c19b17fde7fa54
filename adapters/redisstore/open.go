package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Open connects to the servers that the URL names and opens a store on them:
//
//	redis://user:password@host:6379/0             one server; rediss:// with TLS
//	redis+sentinel://host:26379/0?master_name=m   the master that Sentinel names
//	redis+cluster://host:6379?addr=host2:6379     a cluster
//
// More servers are added with addr, which may be repeated, and the client's
// options as parameters, such as max_retries or pool_size; for Sentinel the
// password in front of the host is Sentinel's, the master's own is the parameter
// password. Deadlines of contexts end a wait for a reply, and a connection that
// cannot be made is tried again with its command only (max_retries).
//
// Every error has an *onlyonce.Error in its chain: CodeConfig for a wrong setting
// or a server that may not be used (it evicts keys, it is a replica),
// CodeUnreachable for one that cannot be reached. Nothing is left open then.
// Close the store when it is no longer used.
func Open(ctx context.Context, address string, cfg Config) (*Store, error) {
	client, err := connect(address)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.own = true
	return s, nil
}

// New opens a store on the caller's client, a *redis.Client (of one server or of
// Sentinel) or a *redis.ClusterClient, which stays the caller's to close. The
// client may send a command again by itself (MaxRetries): all scripts here may be
// repeated, and an outcome that this leaves open is told as such. See Open for
// the errors.
//
// A client whose ContextTimeoutEnabled is false waits for a reply for its read
// timeout, whatever the context's deadline is.
func New(ctx context.Context, client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		// A ring moves keys to other servers when one is down, and forgets claims.
		return nil, configError("the client must be a *redis.Client or a *redis.ClusterClient, got %T", client)
	}
	cfg = cfg.WithDefaults()
	if patience := readTimeout(client); cfg.WaitReplicas > 0 && patience > 0 && cfg.WaitTimeout >= patience {
		return nil, configError("WaitTimeout must be shorter than the client's read timeout of %v, got %v", patience, cfg.WaitTimeout)
	}
	s := newStore(client, cfg)
	if err := s.inspect(ctx); err != nil {
		return nil, err
	}
	for _, note := range s.Notes() {
		if cfg.Logger != nil {
			cfg.Logger.WarnContext(ctx, "redisstore: "+note)
		}
	}
	return s, nil
}

// readTimeout is how long the client waits for a reply; not positive: for ever, or as
// long as the context says.
func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}

// connect makes the client for a URL. It connects to nothing yet.
func connect(address string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	secure, kind, _ := strings.Cut(scheme, "+")
	plain := secure + "://" + rest
	switch kind {
	case "":
		opt, err := redis.ParseURL(plain)
		if err != nil {
			return nil, urlError(err)
		}
		opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
		return redis.NewClient(opt), nil
	case "sentinel":
		opt, err := redis.ParseFailoverURL(plain)
		if err != nil {
			return nil, urlError(err)
		}
		if opt.MasterName == "" {
			return nil, configError("a URL of Sentinel needs the parameter master_name")
		}
		opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
		return redis.NewFailoverClient(opt), nil
	case "cluster":
		opt, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, urlError(err)
		}
		opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
		return redis.NewClusterClient(opt), nil
	default:
		return nil, configError("the URL's scheme must be redis, rediss, redis+sentinel or redis+cluster, got %q", scheme)
	}
}

// urlError says what is wrong with a URL without showing it: it may hold a
// password.
func urlError(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = errors.New("it is not a URL")
	}
	e := configError("the URL must be one like redis://user:password@host:6379/0, with further servers as parameters addr=host:port")
	e.Err = fmt.Errorf("read the URL: %w", err)
	return e
}

// Close closes the client if Open made it. It may be called twice.
func (s *Store) Close() error {
	if !s.own || s.closed.Swap(true) {
		return nil
	}
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close redisstore: %w", err)
	}
	return nil
}
