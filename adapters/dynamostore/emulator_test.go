package dynamostore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// emulator is an EMULATION of what dynalite lacks, and nothing else:
//
//   - TransactWriteItems, with its reasons and its request tokens. Each write of a
//     transaction is made by dynalite itself, as the single operation it stands for,
//     so that dynalite judges every condition; while a transaction is under way
//     nobody else is let through, and when a condition fails what was written is put
//     back.
//   - ReturnValuesOnConditionCheckFailure, where a test asks for it.
//
// Everything else is handed to dynalite as it came. It can also cut the connection
// after dynalite has answered, and answer in dynalite's place.
type emulator struct {
	dynalite string
	client   *http.Client
	server   *httptest.Server

	busy sync.RWMutex // held for writing by a transaction

	mu     sync.Mutex
	faults []*fault
	tokens map[string]string // request token → what was asked
	keys   map[string][]string
	calls  map[string]int
	// held runs once, while the next write waits for its reply.
	held func()
	// sendsItems: a refused write comes with the item that stood in its way.
	sendsItems bool
}

// fault happens to the next requests whose operation is op and whose text has all of
// the words.
type fault struct {
	op    string
	words []string
	skip  int // so many of them are spared first
	times int
	// before: the request is not carried out. status and code are the answer;
	// without a status the connection is cut.
	before bool
	status int
	answer map[string]any
}

func newEmulator(t *testing.T, endpoint string) *emulator {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	e := &emulator{
		dynalite: endpoint, client: &http.Client{Transport: transport},
		tokens: map[string]string{}, keys: map[string][]string{}, calls: map[string]int{},
	}
	e.server = httptest.NewServer(e)
	t.Cleanup(func() {
		e.server.Close()
		transport.CloseIdleConnections()
	})
	return e
}

// add arranges a fault.
func (e *emulator) add(f fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, &f)
}

// mend takes all faults away.
func (e *emulator) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

// pending is how many faults have not happened yet.
func (e *emulator) pending() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, f := range e.faults {
		n += f.times
	}
	return n
}

// count is how many requests of an operation there were since the last reset.
func (e *emulator) count(op string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[op]
}

func (e *emulator) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.calls)
}

// hold runs fn while the next PutItem waits for its reply, which never comes.
func (e *emulator) hold(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = fn
}

func (e *emulator) takeHeld(op string) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if op != "PutItem" || e.held == nil {
		return nil
	}
	fn := e.held
	e.held = nil
	return fn
}

func (e *emulator) faultOf(op, body string) *fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[op]++
	for _, f := range e.faults {
		hit := f.times > 0 && f.op == op
		for _, w := range f.words {
			hit = hit && strings.Contains(body, w)
		}
		if hit && f.skip > 0 {
			f.skip--
			continue
		}
		if hit {
			f.times--
			return f
		}
	}
	return nil
}

func (e *emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f := e.faultOf(op, string(body))
	if f != nil && f.before {
		f.happen(w)
		return
	}
	status, answer := e.carryOut(r, op, body)
	if fn := e.takeHeld(op); fn != nil {
		fn()
		<-r.Context().Done() // the client has gone
		return
	}
	if f != nil {
		f.happen(w)
		return
	}
	reply(w, status, answer)
}

// happen answers in the server's place, or cuts the connection.
func (f *fault) happen(w http.ResponseWriter) {
	if f.status == 0 {
		panic(http.ErrAbortHandler)
	}
	text, _ := json.Marshal(f.answer)
	reply(w, f.status, text)
}

func reply(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (e *emulator) carryOut(r *http.Request, op string, body []byte) (int, []byte) {
	if op == "TransactWriteItems" {
		e.busy.Lock()
		defer e.busy.Unlock()
		return e.transact(r, body)
	}
	if e.sendsItems && strings.Contains(string(body), "ALL_OLD") {
		e.busy.Lock()
		defer e.busy.Unlock()
		return e.withItem(r, op, body)
	}
	e.busy.RLock()
	defer e.busy.RUnlock()
	return e.forward(r, op, body)
}

// forward hands a request to dynalite, which looks at the form of the signature alone.
func (e *emulator) forward(r *http.Request, op string, body []byte) (int, []byte) {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, e.dynalite, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadGateway, nil
	}
	out.Header = r.Header.Clone()
	out.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	res, err := e.client.Do(out)
	if err != nil {
		return http.StatusBadGateway, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return http.StatusBadGateway, nil
	}
	return res.StatusCode, text
}

// ask is forward for what the emulator itself wants to know.
func (e *emulator) ask(r *http.Request, op string, body map[string]any) (int, map[string]any) {
	text, _ := json.Marshal(body)
	status, answer := e.forward(r, op, text)
	var m map[string]any
	_ = json.Unmarshal(answer, &m)
	return status, m
}

// withItem adds the item that refused a write.
func (e *emulator) withItem(r *http.Request, op string, body []byte) (int, []byte) {
	status, answer := e.forward(r, op, body)
	var asked, m map[string]any
	_ = json.Unmarshal(body, &asked)
	_ = json.Unmarshal(answer, &m)
	if status == http.StatusBadRequest && isRefusal(m) {
		m["Item"] = e.item(r, asked)
		answer, _ = json.Marshal(m)
	}
	return status, answer
}

func isRefusal(answer map[string]any) bool {
	return strings.HasSuffix(fmt.Sprint(answer["__type"]), "ConditionalCheckFailedException")
}

// item is the item that a write is about, as it stands; nil for none.
func (e *emulator) item(r *http.Request, write map[string]any) any {
	_, got := e.ask(r, "GetItem", map[string]any{"TableName": write["TableName"], "Key": e.key(r, write), "ConsistentRead": true})
	return got["Item"]
}

// key is the primary key of the item that a write is about.
func (e *emulator) key(r *http.Request, write map[string]any) map[string]any {
	if key, ok := write["Key"].(map[string]any); ok {
		return key
	}
	table, _ := write["TableName"].(string)
	e.mu.Lock()
	names := e.keys[table]
	e.mu.Unlock()
	if names == nil {
		_, got := e.ask(r, "DescribeTable", map[string]any{"TableName": table})
		described, _ := got["Table"].(map[string]any)
		schema, _ := described["KeySchema"].([]any)
		for _, k := range schema {
			names = append(names, fmt.Sprint(k.(map[string]any)["AttributeName"]))
		}
		e.mu.Lock()
		e.keys[table] = names
		e.mu.Unlock()
	}
	item, _ := write["Item"].(map[string]any)
	key := map[string]any{}
	for _, n := range names {
		key[n] = item[n]
	}
	return key
}
