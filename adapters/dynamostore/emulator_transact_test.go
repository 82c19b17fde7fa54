package dynamostore_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Part of the EMULATION in emulator_test.go: TransactWriteItems.

const transactLimit = 4 << 20

// transaction is a TransactWriteItems on its way.
type transaction struct {
	TransactItems      []map[string]map[string]any
	ClientRequestToken string
}

// undo puts one item back as it was.
type undo struct {
	write map[string]any
	old   any
}

// transact carries a transaction out, while nobody else is let through.
func (e *emulator) transact(r *http.Request, body []byte) (int, []byte) {
	var t transaction
	if err := json.Unmarshal(body, &t); err != nil {
		return failure("SerializationException", err.Error())
	}
	asked, _ := json.Marshal(t.TransactItems)
	if known, done := e.tokens[t.ClientRequestToken]; done {
		if known != string(asked) {
			return failure("IdempotentParameterMismatchException", "another request has this token")
		}
		return http.StatusOK, []byte(`{}`)
	}
	if why := e.invalid(r, t, len(body)); why != "" {
		return failure("ValidationException", why)
	}
	var reasons []map[string]any
	var undos []undo
	failed := false
	for _, item := range t.TransactItems {
		for kind, write := range item {
			reason, u := e.one(r, kind, write)
			reasons = append(reasons, reason)
			failed = failed || reason["Code"] != "None"
			if u != nil {
				undos = append(undos, *u)
			}
		}
	}
	if !failed {
		e.tokens[t.ClientRequestToken] = string(asked)
		return http.StatusOK, []byte(`{}`)
	}
	for _, u := range undos {
		e.putBack(r, u)
	}
	return cancelled(reasons)
}

// invalid says why the server refuses the transaction as it is.
func (e *emulator) invalid(r *http.Request, t transaction, size int) string {
	if len(t.TransactItems) == 0 || len(t.TransactItems) > 100 {
		return fmt.Sprintf("a transaction has 1 to 100 items, not %d", len(t.TransactItems))
	}
	if size > transactLimit {
		return "the transaction is over 4 MB"
	}
	seen := map[string]bool{}
	for _, item := range t.TransactItems {
		for _, write := range item {
			key, _ := json.Marshal(e.key(r, write))
			name := fmt.Sprint(write["TableName"]) + string(key)
			if seen[name] {
				return "Transaction request cannot include multiple operations on one item"
			}
			seen[name] = true
		}
	}
	return ""
}

// one makes one write as dynalite's own operation, and says how to put it back.
func (e *emulator) one(r *http.Request, kind string, write map[string]any) (map[string]any, *undo) {
	old := e.item(r, write)
	op := kind + "Item"
	if kind == "ConditionCheck" {
		op = "UpdateItem" // of nothing: the condition alone counts
	}
	text, _ := json.Marshal(write)
	status, answer := e.forward(r, op, text)
	if status == http.StatusOK && kind == "ConditionCheck" {
		e.putBack(r, undo{write, old}) // of an absent item it has made one
		return map[string]any{"Code": "None"}, nil
	}
	if status == http.StatusOK {
		return map[string]any{"Code": "None"}, &undo{write, old}
	}
	var m map[string]any
	_ = json.Unmarshal(answer, &m)
	if !isRefusal(m) {
		return map[string]any{"Code": "ValidationError", "Message": m["message"]}, nil
	}
	reason := map[string]any{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
	if write["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD" && old != nil {
		reason["Item"] = old
	}
	return reason, nil
}

func (e *emulator) putBack(r *http.Request, u undo) {
	if u.old == nil {
		e.ask(r, "DeleteItem", map[string]any{"TableName": u.write["TableName"], "Key": e.key(r, u.write)})
		return
	}
	e.ask(r, "PutItem", map[string]any{"TableName": u.write["TableName"], "Item": u.old})
}

func failure(code, message string) (int, []byte) {
	text, _ := json.Marshal(apiError(code, message))
	return http.StatusBadRequest, text
}

// apiError is an error as the server words it.
func apiError(code, message string) map[string]any {
	return map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message}
}

func cancelled(reasons []map[string]any) (int, []byte) {
	text, _ := json.Marshal(cancellation(reasons...))
	return http.StatusBadRequest, text
}

func cancellation(reasons ...map[string]any) map[string]any {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = fmt.Sprint(r["Code"])
	}
	m := apiError("TransactionCanceledException", "")
	delete(m, "message")
	m["Message"] = "Transaction cancelled, please refer cancellation reasons for specific reasons [" + strings.Join(codes, ", ") + "]"
	m["CancellationReasons"] = reasons
	return m
}
