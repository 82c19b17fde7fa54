package oncehttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// C2, B103: a caller who prefers to wait gets the first attempt's answer, as far as the
// operation allows it; who does not is refused at once.
func TestPreferWait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most   time.Duration
		prefer []string
		waits  bool
	}{
		"waits":                  {time.Minute, []string{"wait=30"}, true},
		"among others":           {time.Minute, []string{"respond-async, WAIT = \"30\" ; x=1", "wait=0"}, true},
		"in another line":        {time.Minute, []string{"return=minimal", "wait=30"}, true},
		"does not say":           {time.Minute, nil, false},
		"not at all":             {time.Minute, []string{"wait=0"}, false},
		"no number":              {time.Minute, []string{"wait=soon"}, false},
		"negative":               {time.Minute, []string{"wait=-3"}, false},
		"no value":               {time.Minute, []string{"wait"}, false},
		"more than there is":     {time.Minute, []string{"wait=99999999999999999999"}, false},
		"another preference":     {time.Minute, []string{"waits=30"}, false},
		"in a quoted string":     {time.Minute, []string{`note="a, wait=30", note="b; \", wait=30"`}, false},
		"behind quoted strings":  {time.Minute, []string{`note="a, wait=0; b", x="\"", wait=30`}, true},
		"quotes that do not end": {time.Minute, []string{`wait="30`, "wait=30"}, false},
		"not allowed to anybody": {0, []string{"wait=30"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			s.wrap("POST /charges", oncehttp.Route{Op: onlyonce.Op{MaxWait: tt.most}}, func(w http.ResponseWriter, _ *http.Request) {
				close(entered)
				<-leave
				fmt.Fprint(w, "done")
			})
			s.start(false)
			first := make(chan reply)
			go func() { first <- s.do(ask{keys: key("k1")}) }()
			<-entered
			looked, once := make(chan struct{}), sync.Once{}
			s.store.show(func(rec onlyonce.Record) (onlyonce.Record, bool) {
				once.Do(func() { close(looked) })
				return rec, true
			})
			second := make(chan reply)
			go func() { second <- s.do(ask{keys: key("k1"), header: http.Header{"Prefer": tt.prefer}}) }()
			if tt.waits {
				select {
				case got := <-second:
					close(leave)
					<-first
					t.Fatalf("did not wait: %d %s", got.status, got.body)
				case <-looked:
				}
				close(leave)
				(<-second).replayOf(t, <-first)
				return
			}
			(<-second).problem(t, http.StatusConflict, "request_in_progress")
			close(leave)
			(<-first).expect(t, 200, "executed")
		})
	}
}
