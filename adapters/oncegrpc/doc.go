// Package oncegrpc makes gRPC calls that are done once, however often they have to be
// asked for, and serves them: [onceclient] with gRPC beneath instead of HTTP, and the
// engine behind an interceptor (see The server).
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
//
// # The server
//
// A [Server] honours the keys of the methods that its configuration names, whoever the
// callers are:
//
//	once, err := oncegrpc.NewServer(engine, account, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{
//		"/shop.Till/Charge": {Policy: canon.Policy{Ignore: []string{"client_ts", "items.*.seen"}}},
//	}})
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, once.UnaryServerInterceptor()))
//	pb.RegisterTillServer(server, till)
//	err = once.CheckServices(server.GetServiceInfo())
//
// The key is the metadata idempotency-key, as the header of package oncehttp: quoted or
// bare, sent once. A request is compared by its fields, not by its bytes: their order on
// the wire, packing, the order of maps and fields at their defaults (where proto has no
// presence) do not matter. Unknown fields, extensions and the contents of an Any count by
// their bytes. A record keeps the schema that it was written under, so that a deploy with
// new fields does not make another request of a retry. What differs is named by the paths
// of fields, never by values; fields with the option debug_redact are not named, but the
// message that they are in.
//
// What the handler returns is stored as bytes and sent as they are, to the first caller
// and in replays, with its code, message and details, and with the metadata that
// KeepHeaders and KeepTrailers allow. By its code the key is settled:
//
//	OK, InvalidArgument, NotFound, AlreadyExists,        it is the answer, and replayed
//	FailedPrecondition, OutOfRange, Unimplemented
//	Unauthenticated, PermissionDenied,                   the caller was turned away: the
//	ResourceExhausted                                    key is free, the call may run again
//	Unknown, Internal, Unavailable, DeadlineExceeded,    a failure: the key is in doubt; free
//	Canceled, DataLoss, Aborted, any other               with On5xx: ReleaseKey, in a
//	                                                     transaction, and between finished steps
//
// onlyonce.Declare says otherwise. Answers to a key say in idempotency-status how they
// came about (executed, replayed, refused, ignored, unprotected), repeat the key, and say
// until when they are kept (idempotency-expires); a replay bears idempotent-replayed: true.
// That is in the header of answers that are OK, and in the trailer of all others. Refusals
// have an ErrorInfo with the reason, x-should-retry, and, where it is true, RetryInfo and
// retry-after:
//
//	IDEMPOTENCY_KEY_REQUIRED, _INVALID      InvalidArgument, with BadRequest
//	INVALID_REQUEST                         InvalidArgument
//	UNAUTHENTICATED                         Unauthenticated
//	REPLAY_FORBIDDEN                        PermissionDenied
//	REQUEST_IN_PROGRESS, OUTCOME_UNKNOWN,   Aborted; the same call later
//	RESOURCE_BUSY
//	IDEMPOTENCY_KEY_REUSED                  FailedPrecondition, with PreconditionFailure and
//	                                        what differs
//	IDEMPOTENCY_KEY_EXPIRED                 FailedPrecondition
//	IDEMPOTENCY_STORE_UNAVAILABLE,          Unavailable; the same call later
//	MISDIRECTED_REQUEST
//	HANDLER_FAILED                          Internal; the same call
//	INVALID_CONFIG                          Internal
//	ANSWER_NOT_RETAINED                     the code of the answer, DataLoss if that was OK
//
// The handler's context is detached from the caller's deadline and connection, and bound by
// Op.Deadline: a caller that goes away does not abort what is under way. Metadata is
// buffered until the answer is stored, so that grpc.SendHeader sends nothing early, and
// grpc.SetSendCompressor does not work. Interceptors before the server's see answers as
// messages without a type, and should not turn them into others: what is said of the key
// stays in the metadata. Messages are protobuf of the present generation; a stream cannot
// be honoured. Keys of methods that stream, or are not named, are ignored, and answered so.
package oncegrpc
