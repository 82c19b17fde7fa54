package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// estimate is what there is to print.
type estimate struct {
	cmd     *estimateCmd
	load    load
	prints  []footprint
	latency *latency
	notes   []string
}

// print writes it for people.
func (e *estimate) print(out io.Writer) error {
	c := e.cmd
	fmt.Fprintf(out, "%s a day, kept for %s: %s rows\n", c.PerDay, c.Retention, count(e.load.Rows))
	fmt.Fprintf(out, "%s rows of %s: %s before overhead\n", count(e.load.Rows), c.Row, byteSize(e.load.Bytes))
	if err := e.printStores(out); err != nil {
		return err
	}
	if err := e.printLatency(out); err != nil {
		return err
	}
	for _, note := range e.notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	return nil
}

// printStores is a line for every footprint.
func (e *estimate) printStores(out io.Writer) error {
	if len(e.prints) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STORE\tFIGURES\tA ROW\tINDEXED\tALL ROWS\tINDEXES\tTOTAL")
	for _, p := range e.prints {
		source := p.source
		if p.keys > 0 {
			source += fmt.Sprintf(", %s keys", count(p.keys))
		}
		table, index := e.sizes(p)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			p.kind, source, bytesText(p.table), bytesText(p.index), bytesText(table), bytesText(index), bytesText(table+index))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printLatency is a line for every kind of call.
func (e *estimate) printLatency(out io.Writer) error {
	l := e.latency
	if l == nil {
		return nil
	}
	fmt.Fprintf(out, "\nmeasured with %s keys, one call after another:\n", count(l.Keys))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CALL\tP50\tP99")
	for _, call := range l.calls() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", call.name, short(call.P50), short(call.P99))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// sizes are of the table and of its indexes, in the end.
func (e *estimate) sizes(p footprint) (table, index float64) {
	return p.table * float64(e.load.Rows), p.index * float64(e.load.Rows)
}

// short is a duration with three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// call is a kind of call and its times.
type call struct {
	name string
	quantiles
}

func (l *latency) calls() []call {
	return []call{{"claim", l.Claim}, {"complete", l.Complete}, {"replay", l.Replay}}
}

// estimateView is an estimate for programs. Sizes are bytes.
type estimateView struct {
	PerDay           int64                  `json:"per_day"`
	RetentionSeconds float64                `json:"retention_seconds"`
	RowBytes         int64                  `json:"row_bytes"`
	Rows             int64                  `json:"rows"`
	AnswerBytes      int64                  `json:"answer_bytes"` // before overhead
	Stores           []footprintView        `json:"stores"`
	Latency          map[string]latencyView `json:"latency,omitempty"`
	LatencyKeys      int                    `json:"latency_keys,omitempty"`
	Notes            []string               `json:"notes"`
}

// footprintView is a footprint and what comes of it.
type footprintView struct {
	Kind        string  `json:"kind"`
	Figures     string  `json:"figures"`
	Measured    int64   `json:"measured_keys,omitempty"`
	TablePerKey float64 `json:"table_bytes_per_key"`
	IndexPerKey float64 `json:"index_bytes_per_key"`
	Table       float64 `json:"table_bytes"`
	Index       float64 `json:"index_bytes"`
	Total       float64 `json:"total_bytes"`
}

// latencyView is in milliseconds.
type latencyView struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func (e *estimate) view() estimateView {
	v := estimateView{
		PerDay: int64(e.cmd.PerDay), RetentionSeconds: time.Duration(e.cmd.Retention).Seconds(), RowBytes: int64(e.cmd.Row),
		Rows: e.load.Rows, AnswerBytes: e.load.Bytes, Stores: []footprintView{}, Notes: append([]string{}, e.notes...),
	}
	for _, p := range e.prints {
		table, index := e.sizes(p)
		v.Stores = append(v.Stores, footprintView{p.kind, p.source, p.keys, p.table, p.index, table, index, table + index})
	}
	if l := e.latency; l != nil {
		v.Latency, v.LatencyKeys = map[string]latencyView{}, l.Keys
		for _, c := range l.calls() {
			v.Latency[c.name] = latencyView{c.P50.Seconds() * 1000, c.P99.Seconds() * 1000}
		}
	}
	return v
}
