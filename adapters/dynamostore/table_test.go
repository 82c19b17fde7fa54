package dynamostore_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

func static() []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("id", "secret", "")),
		config.WithSharedConfigFiles(nil), config.WithSharedCredentialsFiles(nil),
	}
}

// Open makes and checks the table that a URL names.
func TestOpen(t *testing.T) {
	t.Parallel()
	tb := newTables(t)
	url := "dynamodb://" + tb.name + "?region=eu-central-1&endpoint=" + tb.server.URL
	cfg := dynamostore.Config{SweepExpired: true, Load: static()}
	if _, err := dynamostore.Open(t.Context(), url, cfg); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("without a table: %v", err)
	}
	cfg.Create = true
	for range 2 { // the table is there the second time
		s, err := dynamostore.Open(t.Context(), url, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want(t, s, request(newName()), onlyonce.Won)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if n := len(tb.items(t, "record")); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
	_, err := dynamostore.Open(t.Context(), "dynamodb://table?region=a&endpoint=http://127.0.0.1:1", dynamostore.Config{Load: static()})
	if !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("without a server: %v, want unreachable", err)
	}
}

// A wrong URL or setting says what to do.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	for url, hint := range map[string]string{
		"":                                   "dynamodb://table",
		"postgres://host/db":                 "dynamodb://table",
		"dynamodb:///":                       "dynamodb://table",
		"dynamodb://u:p@table":               "credentials",
		"dynamodb://table/other":             "dynamodb://table",
		"dynamodb://table?zone=a":            `"zone"`,
		"dynamodb://table?region=a&region=b": "2 times",
		"dynamodb://table?region=a&endpoint=localhost": "http://",
		"dynamodb://ab?region=a":                       "3 to 255",
	} {
		_, err := dynamostore.Open(t.Context(), url, dynamostore.Config{Load: static()})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want a word of %q", url, err, hint)
		}
	}
	if _, err := dynamostore.New(nil, dynamostore.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no client: %v", err)
	}
	if _, err := dynamostore.New(&dynamodb.Client{}, dynamostore.Config{Table: "no spaces"}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("bad name: %v", err)
	}
	if got := (dynamostore.Config{}).WithDefaults(); got.Table != dynamostore.DefaultTable || got.Now == nil {
		t.Errorf("defaults: %+v", got)
	}
}

// A table of something else is refused before anything is written to it.
func TestCheckRefusesOtherTables(t *testing.T) {
	t.Parallel()
	key := func(hash, rang string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(rang), KeyType: types.KeyTypeRange},
		}
	}
	for what, change := range map[string]func(*dynamodb.CreateTableInput){
		"belongs to something else": func(in *dynamodb.CreateTableInput) { in.KeySchema = key("sk", "pk") },
		"no index": func(in *dynamodb.CreateTableInput) {
			in.GlobalSecondaryIndexes, in.AttributeDefinitions = nil, in.AttributeDefinitions[:2]
		},
		"has the key": func(in *dynamodb.CreateTableInput) { in.GlobalSecondaryIndexes[0].KeySchema = key("at", "open") },
	} {
		tb := newTables(t)
		s := tb.open(t, dynamostore.Config{})
		in := s.Table()
		change(in)
		if _, err := s.Client().CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want a word of %q", err, what)
		}
	}
}

// ttlStatus is an answer to DescribeTimeToLive.
func ttlStatus(status, attribute string) map[string]any {
	return map[string]any{"TimeToLiveDescription": map[string]any{"TimeToLiveStatus": status, "AttributeName": attribute}}
}

// T3: without time to live the table would grow for ever. dynalite has none, so its
// answers are made up here.
func TestTimeToLiveIsTurnedOn(t *testing.T) {
	t.Parallel()
	_, tb := migrated(t, dynamostore.Config{})
	s, err := dynamostore.New(tb.connect(t), dynamostore.Config{Table: tb.name})
	if err != nil {
		t.Fatal(err)
	}
	status := func(times int, answer map[string]any) {
		tb.add(fault{op: "DescribeTimeToLive", times: times, before: true, status: http.StatusOK, answer: answer})
	}
	status(1, ttlStatus("DISABLED", ""))
	if err := s.Check(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "SweepExpired") {
		t.Errorf("off: %v", err)
	}
	status(1, ttlStatus("ENABLED", "expires"))
	if err := s.Check(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "expires") {
		t.Errorf("another attribute: %v", err)
	}
	status(1, ttlStatus("DISABLED", ""))
	status(3, ttlStatus("DISABLED", "")) // it takes a while to say so
	status(2, ttlStatus("ENABLING", "ttl"))
	tb.add(fault{op: "UpdateTimeToLive", words: []string{`"ttl"`, "true"}, times: 1, before: true, status: http.StatusOK, answer: map[string]any{}})
	if err := s.Migrate(t.Context()); err != nil || tb.pending() != 0 {
		t.Errorf("migrate: %v, %d calls are missing", err, tb.pending())
	}
	status(2, ttlStatus("ENABLED", "ttl"))
	if err := s.Migrate(t.Context()); err != nil || tb.pending() != 0 {
		t.Errorf("migrate again: %v, %d calls are missing", err, tb.pending())
	}
}

// Of two that migrate at once the second is told that time to live is on already; what
// it finds then counts.
func TestTimeToLiveWasTurnedOnBySomebodyElse(t *testing.T) {
	t.Parallel()
	for found, ok := range map[string]bool{"ENABLING": true, "DISABLED": false} {
		_, tb := migrated(t, dynamostore.Config{})
		s, err := dynamostore.New(tb.connect(t), dynamostore.Config{Table: tb.name})
		if err != nil {
			t.Fatal(err)
		}
		status := func(times int, status string) {
			tb.add(fault{op: "DescribeTimeToLive", times: times, before: true, status: http.StatusOK, answer: ttlStatus(status, "ttl")})
		}
		status(2, "DISABLED")
		status(100, found)
		tb.add(fault{op: "UpdateTimeToLive", times: 1, before: true, status: http.StatusBadRequest, answer: apiError("ValidationException", "TimeToLive is already enabled")})
		if err := s.Migrate(t.Context()); (err == nil) != ok || (!ok && !strings.Contains(err.Error(), "already enabled")) {
			t.Errorf("%s: %v", found, err)
		}
	}
}

// A bundle of certificates, as AWS_CA_BUNDLE names one, goes with the connections that
// Open makes.
func TestOpenWithCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	url := "dynamodb://table?region=eu-central-1&endpoint=" + server.URL
	for trusted, load := range map[bool][]func(*config.LoadOptions) error{
		true: append(static(), config.WithCustomCABundle(bytes.NewReader(bundle))), false: static(),
	} {
		// The server answers nothing of use; that it is asked shows that it is trusted.
		_, err := dynamostore.Open(t.Context(), url, dynamostore.Config{Load: load})
		if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || strings.Contains(err.Error(), "certificate") == trusted {
			t.Errorf("trusted %v: %v", trusted, err)
		}
	}
}

// S1: an item of another key under a key's digest is never answered from.
func TestForeignItem(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	want(t, s, request("k"), onlyonce.Won)
	item := tb.items(t, "record")[0]
	for _, change := range []map[string]types.AttributeValue{{"key": str("other")}, {"key": str("k"), "sum": str("x")}} {
		maps.Copy(item, change)
		if _, err := s.Client().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(tb.name), Item: item}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Get(t.Context(), keyOf("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
			t.Errorf("get: %v", err)
		}
		if c, err := s.Claim(t.Context(), request("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
			t.Errorf("claim: %v, %v", c.Verdict, err)
		}
	}
}
