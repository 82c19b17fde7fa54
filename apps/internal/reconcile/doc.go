// Package reconcile compares what a provider reports with the service's books and
// with what its keys have begun (rule X2), stores what does not agree, and settles
// keys whose end the report proves.
//
// A run reads the whole report before it draws a conclusion: the rows are staged
// in the database, in short transactions, and nothing else is written until the
// last line was good. One run at a time is at work on a database. What a run that
// died has staged is deleted by the next.
//
// A key is settled through the same one-owner claim as by an operator, and audited.
// What is proved to have happened becomes the result of its step, and the
// operation's own handler makes books and answer of it. That something is not in a
// report proves nothing by itself: see [Config.From] and [Config.CompleteUntil].
package reconcile
