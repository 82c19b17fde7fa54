// Package oncegrpc makes gRPC calls that are done once, however often they have to be
// asked for: [onceclient] with gRPC beneath instead of HTTP.
//
//	conn, err := grpc.NewClient("dns:///payments:443", oncegrpc.DialOptions()...)
//	client, err := onceclient.New(onceclient.Config{Journal: journal, Sender: oncegrpc.NewSender(conn)})
//	payments := pb.NewPaymentsClient(oncegrpc.Wrap(conn, client, oncegrpc.Config{}))
//
//	ctx = onceclient.WithIntent(ctx, "order-42/charge")
//	receipt, err := payments.Charge(ctx, charge)
//
// A unary call through the wrapped connection is an operation of the client: it gets a
// key, is journaled before it is sent, and every attempt carries the key in its metadata
// (idempotency-key) and the same bytes, which are marshalled once. After a crash
// [onceclient.Client.Resume] goes on with it from the journal, which knows only bytes
// and the name of the method; [Unmarshal] reads the answers. Errors are those of
// [onceclient.Client.Do] for errors.As, and have a status for package status:
//
//	*onceclient.RefusedError     the server's own status
//	*onceclient.NotSentError     why nothing was sent, else Unavailable
//	*onceclient.UnknownError     Unknown, whatever the last attempt said, so that nobody
//	                             above takes it for a call that may simply be repeated
//	*onceclient.UnrecordedError  Unknown as well; errors.As finds the answer
//
// Calls that are no operations, as reads, are named by Config.Pass and go through as
// they are. A stream cannot be done once: one that Pass does not name is refused.
//
// What an answer means is decided by its status code and metadata, which both come
// without the message ([NewSender]). That nothing was sent is proved where the
// connection never asked for the request's bytes, as when none could be made; whatever
// happens behind that is asked for again.
//
// # What gRPC repeats by itself
//
// grpc-go repeats a call without asking where the server has said that it never looked
// at it, or nothing was written ("transparent retry"). That is harmless: the server has
// seen it once. A retry policy in a service configuration repeats what may have had an
// effect. It repeats the same key and bytes, so that a server that honours keys does it
// once; but nobody counts these attempts, and no budget bounds them. [DialOptions]
// switches them off. Retrying interceptors are better left away for the same reason.
//
// # Limits
//
// Interceptors of the connection see attempts, whose messages are bytes; put those that
// want messages in front of [UnaryClientInterceptor]. Messages are protobuf: calls with
// another codec are refused. A journal belongs to one server, because an entry names the
// method and not the server. Credentials belong into the connection
// (grpc.WithPerRPCCredentials): those in a call's metadata or options are gone after a
// crash.
package oncegrpc
