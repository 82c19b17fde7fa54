package dynamostore

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// Store is an onlyonce store in a DynamoDB table. It is safe for concurrent use,
// and so are any number of them on one table, in any processes. What it has seen of
// leases is its own: make one for a process, not one for a request.
type Store struct {
	client *dynamodb.Client
	table  string
	clock  func() time.Time
	watch  *watch.Watch
	sweeps bool // deletes what has expired
	// sends watches the last sends of steps, skew is what clocks may differ by.
	sends  *watch.Watch
	skew   time.Duration
	sweep  scout
	due    scout
	read   reader
	recent recent
	// audits orders the entries that this handle makes in one microsecond.
	audits atomic.Int64
	log    *slog.Logger
	close  func()
}

var (
	_ onlyonce.Store         = (*Store)(nil)
	_ onlyonce.TxStore[*Tx]  = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
	_ onlyonce.RecoveryStore = (*Store)(nil)
)

// New makes a Store that uses the client, which stays the caller's. It sends
// nothing: call Check at start, or Migrate. The client's own retries are welcome;
// a write that it repeats is recognised.
func New(client *dynamodb.Client, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, configError("client", "must not be nil")
	}
	cfg = cfg.WithDefaults()
	return &Store{
		client: client, table: cfg.Table, clock: cfg.Now, watch: watch.New(cfg.Now, 0),
		sends: watch.New(cfg.Now, 0), skew: max(0, cfg.MaxClockSkew), log: cfg.Logger,
		sweeps: cfg.SweepExpired, close: func() {},
	}, nil
}

// Open opens the table that a URL names,
//
//	dynamodb://table?region=eu-central-1&endpoint=http://localhost:8000
//
// and checks it. Region and endpoint default to what the SDK finds in the
// environment, which is also where credentials come from. The error is CodeConfig
// for a wrong URL, a missing table or one of another form, onlyonce.ErrUnreachable
// when there is no connection. Close the store when it is no longer used.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	from, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.Table = from.table
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	load := slices.Clone(cfg.Load)
	if from.region != "" {
		load = append(load, config.WithRegion(from.region))
	}
	if from.endpoint != "" {
		load = append(load, config.WithBaseEndpoint(from.endpoint))
	}
	sdk, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "open table", Hint: "the SDK's configuration cannot be read", Err: err}
	}
	if sdk.Region == "" {
		return nil, configError("url", "names no region, nor does AWS_REGION: add ?region=…")
	}
	end := ownConnections(&sdk)
	s, err := New(dynamodb.NewFromConfig(sdk), cfg)
	if err != nil {
		return nil, err
	}
	s.close = end
	bring := s.Check
	if cfg.Create {
		bring = s.Migrate
	}
	if err := bring(ctx); err != nil {
		return nil, closed(s, err)
	}
	return s, nil
}

// ownConnections gives the SDK connections that Close can close, unless the caller has
// handed in an HTTP client.
func ownConnections(sdk *aws.Config) (end func()) {
	buildable, ok := sdk.HTTPClient.(*awshttp.BuildableClient)
	if !ok && sdk.HTTPClient != nil {
		return func() {}
	}
	if buildable == nil {
		buildable = awshttp.NewBuildableClient()
	}
	client := buildable.WithTransportOptions(func(tr *http.Transport) {
		tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, 256
	}).Freeze()
	sdk.HTTPClient = client
	if c, ok := client.(*http.Client); ok {
		return c.CloseIdleConnections
	}
	return func() {}
}

// closed closes a store that cannot be used.
func closed(s *Store, err error) error {
	s.close()
	return err
}

// Close closes the idle connections of a store that Open made. It may be called
// twice.
func (s *Store) Close() error {
	s.close()
	return nil
}

// Client is the store's client, for business reads.
func (s *Store) Client() *dynamodb.Client { return s.client }

// damaged reports an item that cannot be read, and is passed over for that.
func (s *Store) damaged(ctx context.Context, op string, err error) {
	s.log.ErrorContext(ctx, "dynamostore: an item is passed over: repair or delete it", slog.String("op", op), slog.Any("error", err))
}

// Features says what the store promises: durable in one region, leases and the
// idleness of sends by watching, one of several transactions of a key by its commit.
// Clocks of processes decide about retention, turns, and, with Config.MaxClockSkew to
// spare, the age of sends.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{
		Name: "dynamodb", Durable: true, Transactions: true, Steps: true, Resources: true, Recovery: true,
		Settings: true, Operators: true, Observes: true, CommitDecides: true,
	}
}
