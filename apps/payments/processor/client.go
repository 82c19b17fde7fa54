package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// DefaultTimeout is how long a call may take where [Client.Timeout] is zero.
const DefaultTimeout = 10 * time.Second

// Client calls a processor. Only BaseURL is required. One call makes at most
// one HTTP request: nothing is repeated, no redirect is followed. All errors
// hold an [*Error]; ask [FateOf] what they mean. A Client is safe for concurrent
// use and must not be changed or copied after its first.
//
// It sends by package oncecall: within a protected operation charges and refunds
// are made in Effect.Send, with the derived key or with none; elsewhere in it they
// are refused. Outside of one the caller has chosen the key.
//
// A process that dies during a call leaves the effect unknown. The caller must
// have kept key and bytes before, to send them again.
type Client struct {
	// BaseURL is where the processor lives, such as "http://127.0.0.1:9090". A
	// path in it comes before the API's.
	BaseURL string
	// HTTP makes the requests. Nil means one with [http.DefaultTransport]. Its
	// redirect policy is not used. Where its transport is not net/http's, or does
	// not honour net/http/httptrace, no failure can be proved to be [NotSent]. An
	// oncecall.Transport is used as it is, and decides about keys in Effect.Send.
	HTTP *http.Client
	// Timeout bounds each call, the reading of the answer included. Zero means
	// [DefaultTimeout].
	Timeout time.Duration

	once           sync.Once
	keyed, keyless *http.Client
}

// Charge sends body, made by [ChargeRequest.Encode], under key. A declined card
// is a Charge with [StatusDeclined] and no error. An empty key sends none.
func (c *Client) Charge(ctx context.Context, key string, body []byte) (Charge, error) {
	var charge Charge
	replayed, err := c.post(ctx, "/v1/charges", key, post{body: body, into: &charge, accept: func(status int) bool {
		switch status {
		case http.StatusCreated:
			return charge.ID != "" && charge.Status == StatusSucceeded
		case http.StatusPaymentRequired:
			return charge.ID != "" && charge.Status == StatusDeclined
		default:
			return false
		}
	}})
	if err != nil {
		return Charge{}, fmt.Errorf("create charge: %w", err)
	}
	charge.Replayed = replayed
	return charge, nil
}

// Refund sends body, made by [RefundRequest.Encode], under key. An empty key
// sends none.
func (c *Client) Refund(ctx context.Context, key string, body []byte) (Refund, error) {
	var refund Refund
	replayed, err := c.post(ctx, "/v1/refunds", key, post{body: body, into: &refund, accept: func(status int) bool {
		return status == http.StatusCreated && refund.ID != "" && refund.Status == StatusSucceeded
	}})
	if err != nil {
		return Refund{}, fmt.Errorf("create refund: %w", err)
	}
	refund.Replayed = replayed
	return refund, nil
}

// FindCharge asks for the charge with the caller's reference. Where there are
// several, the first that took money is returned, else the first. False with a
// nil error means that the processor does not see one now; that proves nothing
// until its time for charges to become visible has passed. A processor without
// look-up gives an error with [CodeLookupUnsupported].
func (c *Client) FindCharge(ctx context.Context, reference string) (Charge, bool, error) {
	var found page[Charge]
	if err := c.lookUp(ctx, "/v1/charges", reference, &found); err != nil {
		return Charge{}, false, fmt.Errorf("find charge: %w", err)
	}
	for _, charge := range found.Data {
		if charge.Succeeded() {
			return charge, true, nil
		}
	}
	if len(found.Data) == 0 {
		return Charge{}, false, nil
	}
	return found.Data[0], true, nil
}

// FindRefund asks for the first refund with the caller's reference, as
// [Client.FindCharge] does for a charge.
func (c *Client) FindRefund(ctx context.Context, reference string) (Refund, bool, error) {
	var found page[Refund]
	if err := c.lookUp(ctx, "/v1/refunds", reference, &found); err != nil {
		return Refund{}, false, fmt.Errorf("find refund: %w", err)
	}
	if len(found.Data) == 0 {
		return Refund{}, false, nil
	}
	return found.Data[0], true, nil
}

// ListCharges returns a page of all charges, oldest first, and the cursor of the
// next page: empty after the last. The first page has the empty cursor. A limit
// of 0 leaves the size to the processor.
func (c *Client) ListCharges(ctx context.Context, cursor string, limit int) ([]Charge, string, error) {
	var listed page[Charge]
	if err := c.get(ctx, "/v1/charges?"+listQuery(cursor, limit), &listed); err != nil {
		return nil, "", fmt.Errorf("list charges: %w", err)
	}
	return listed.Data, listed.Next, nil
}

// ListRefunds returns a page of all refunds, as [Client.ListCharges] does.
func (c *Client) ListRefunds(ctx context.Context, cursor string, limit int) ([]Refund, string, error) {
	var listed page[Refund]
	if err := c.get(ctx, "/v1/refunds?"+listQuery(cursor, limit), &listed); err != nil {
		return nil, "", fmt.Errorf("list refunds: %w", err)
	}
	return listed.Data, listed.Next, nil
}

// Report writes the settlement report to w, as it arrives: CSV with a header line
// and a line for each charge that took money and each refund, oldest first. The
// columns are those of [ReportColumns]. After an error what w has got is a part of
// it, and may end within a line. Timeout bounds the whole, so a long report needs a
// long one.
func (c *Client) Report(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	response, err := c.open(ctx, message{method: http.MethodGet, path: "/v1/report.csv", accept: "text/csv"})
	if err != nil {
		return fmt.Errorf("get report: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		a, err := read(response)
		if err != nil {
			return fmt.Errorf("get report: %w", err)
		}
		return fmt.Errorf("get report: %w", a.refusal())
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("get report: %w", &Error{Status: response.StatusCode, Err: fmt.Errorf("copy answer: %w", err)})
	}
	return nil
}

// Stats asks what the processor has done.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	if err := c.get(ctx, "/v1/stats", &st); err != nil {
		return Stats{}, fmt.Errorf("get statistics: %w", err)
	}
	return st, nil
}

func listQuery(cursor string, limit int) string {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return query.Encode()
}

func (c *Client) lookUp(ctx context.Context, path, reference string, into any) error {
	if reference == "" {
		return unsent(errors.New("reference is empty"))
	}
	return c.get(ctx, path+"?"+url.Values{"reference": {reference}}.Encode(), into)
}

// get makes a request without an effect.
func (c *Client) get(ctx context.Context, path string, into any) error {
	a, err := c.send(ctx, message{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return a.refusal()
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return &Error{Status: a.status, Err: fmt.Errorf("read answer: %w", err)}
	}
	return nil
}

// post is a request with an effect and what its answer must look like.
type post struct {
	body   []byte
	into   any
	accept func(status int) bool
}

// post sends p under key and reports whether the answer was a replay.
func (c *Client) post(ctx context.Context, path, key string, p post) (replayed bool, err error) {
	if err := checkKey(key); err != nil {
		return false, unsent(err)
	}
	if len(p.body) == 0 {
		return false, unsent(errors.New("body is empty"))
	}
	a, err := c.send(ctx, message{method: http.MethodPost, path: path, key: key, body: p.body})
	if err != nil {
		return false, err
	}
	if a.status != http.StatusCreated && a.status != http.StatusPaymentRequired {
		return false, a.refusal()
	}
	if err := json.Unmarshal(a.body, p.into); err != nil {
		return false, &Error{Status: a.status, Err: fmt.Errorf("read answer: %w", err)}
	}
	if !p.accept(a.status) {
		return false, a.refusal()
	}
	return a.replayed, nil
}

// checkKey refuses keys that a header cannot carry.
func checkKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("key is longer than %d characters", maxKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return errors.New("key has characters other than printable ASCII")
		}
	}
	return nil
}
