package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// ScopeFunc names the account a call is made for: the owner of its key. It must come
// from the authenticated principal, as an interceptor before this one has put it into
// the context, and be the account, never the credential, so that a rotated credential
// finds its answers again (rules S2, S3). Two calls of different tenants must never get
// the same scope, nor one tenant two.
//
// An empty scope or an error is answered with Unauthenticated, and the key is not used.
// A ScopeFunc is safe for concurrent use.
type ScopeFunc func(ctx context.Context) (string, error)

// ServerConfig configures a Server. The zero value of every field but Methods is the
// careful choice.
type ServerConfig struct {
	// Methods are the methods whose keys count, by their full names, as
	// "/shop.Till/Charge". Calls of all others go through as they are, and a key is
	// answered with idempotency-status: ignored (rule K5).
	Methods map[string]ServerMethod
	// StrictKeys takes keys in the quoted form only, as RFC 9651 has it. Default: the
	// bare form too.
	StrictKeys bool
	// KeyNames are further metadata that may carry the key, such as x-request-id.
	// A call that carries two different keys is refused (rule K6).
	KeyNames []string
	// Domain is that of the ErrorInfo in refusals. Default "onlyonce".
	Domain string
	// DocsURL is the base of a Help link in refusals, to which the code is added:
	// "https://docs.example.com/errors/". Empty: no link.
	DocsURL string
	// StoreRetryAfter is how long callers are told to wait at least when the store
	// cannot be reached, at least a second. Default 2 s.
	StoreRetryAfter time.Duration
	// Logger is where causes go that callers must not see, panics and replays.
	// Default: warnings and errors as text to the process's standard error.
	Logger *slog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c ServerConfig) WithDefaults() ServerConfig {
	if c.Domain == "" {
		c.Domain = "onlyonce"
	}
	if c.StoreRetryAfter == 0 {
		c.StoreRetryAfter = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c ServerConfig) Validate() error {
	var errs []error
	if len(c.Methods) == 0 {
		errs = append(errs, badSetting("Methods", "must name a method: no key counts otherwise"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Methods)) {
		if !isMethod(name) {
			errs = append(errs, badSetting("Methods", fmt.Sprintf("%q is no full name of a method, as /shop.Till/Charge", name)))
			continue
		}
		if err := c.Methods[name].named(name).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, name := range c.KeyNames {
		if name != strings.ToLower(name) || !plainName(name) {
			errs = append(errs, badSetting("KeyNames", fmt.Sprintf("%q is no name of metadata: lower case, not binary, not of gRPC itself", name)))
		}
	}
	if c.StoreRetryAfter != 0 && c.StoreRetryAfter < time.Second {
		errs = append(errs, badSetting("StoreRetryAfter", fmt.Sprintf("must be at least 1 s, got %v", c.StoreRetryAfter)))
	}
	return errors.Join(errs...)
}

// plainName tells whether metadata of a name is a service's own, and text.
func plainName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasPrefix(name, ":") && name != "content-type" &&
		!strings.HasSuffix(name, binarySuffix) && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

// Server honours the keys of unary calls. It is safe for concurrent use.
type Server struct {
	engine  *onlyonce.Engine
	scope   ScopeFunc
	cfg     ServerConfig
	methods map[string]*method
	names   []string // of metadata that may carry the key
}

// NewServer makes a Server over an engine, which stays its owner's to close. The scope
// decides who sees whose answers, so there is no default for it. The error is an
// *onlyonce.Error with CodeConfig, or several joined.
func NewServer(engine *onlyonce.Engine, scope ScopeFunc, cfg ServerConfig) (*Server, error) {
	errs := []error{cfg.Validate()}
	if engine == nil {
		errs = append(errs, badSetting("engine", "must not be nil"))
	}
	if scope == nil {
		errs = append(errs, badSetting("scope", "must not be nil: say whose key a key is"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Server{engine: engine, scope: scope, cfg: cfg.WithDefaults(), methods: map[string]*method{}}
	s.names = append([]string{keyName}, cfg.KeyNames...)
	for name, m := range s.cfg.Methods {
		m = m.named(name).WithDefaults()
		if err := m.Mode.check(engine, m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		s.methods[name] = &method{ServerMethod: m, full: name}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// CheckServices holds the methods of the configuration against what a server has
// registered, as its GetServiceInfo says: a method that is not there or that streams is a
// start-up error, and so is a path of a policy that leads to no field, where the
// generated code of the service is linked in. Call it before Serve.
//
// The error is an *onlyonce.Error with CodeConfig, or several joined.
func (s *Server) CheckServices(info map[string]grpc.ServiceInfo) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		if err := s.methods[name].checkService(info); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *method) checkService(info map[string]grpc.ServiceInfo) error {
	service, short, _ := strings.Cut(m.full[1:], "/")
	registered, ok := info[service]
	if !ok {
		return badSetting("Methods", fmt.Sprintf("%s is of a service that is not registered; correct the name, or register it first", m.full))
	}
	i := slices.IndexFunc(registered.Methods, func(r grpc.MethodInfo) bool { return r.Name == short })
	switch {
	case i < 0:
		return badSetting("Methods", fmt.Sprintf("%s is no method of its service; correct the name", m.full))
	case registered.Methods[i].IsClientStream || registered.Methods[i].IsServerStream:
		return badSetting("Methods", fmt.Sprintf("%s streams, and a stream cannot be done once; leave it out", m.full))
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil //nolint:nilerr // no generated code: the policy is checked with the first call
	}
	if desc, ok := found.(protoreflect.ServiceDescriptor); ok {
		if d := desc.Methods().ByName(protoreflect.Name(short)); d != nil {
			_, err = m.planFor(d.Input())
		}
	}
	return err
}

// UnaryServerInterceptor is what honours the keys. Interceptors that authenticate, limit
// rates and trace belong before it, in grpc.ChainUnaryInterceptor. Those behind it are
// part of the handler: they run once for an operation, and they see messages, while those
// before it see answers as the bytes that are stored.
func (s *Server) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := &serving{server: s, ctx: disbelieve(ctx), req: req, handler: handler, full: info.FullMethod}
		return c.enter() //nolint:contextcheck // the call holds its context
	}
}

// StreamServerInterceptor lets streams through and says that their keys are ignored. A
// stream of a method that the configuration names is refused, which CheckServices finds
// earlier. It is not needed where callers send no keys with streams.
func (s *Server) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := &serving{server: s, ctx: disbelieve(stream.Context()), full: info.FullMethod}
		if s.methods[info.FullMethod] != nil {
			_, err := c.refuse("", badSetting("Methods", info.FullMethod+" streams, and a stream cannot be done once; leave it out"))
			return err
		}
		if sent := c.sentKey(); sent != "" {
			if err := stream.SetHeader(metadata.Pairs(idempotencyStatus, oncehttp.StatusIgnored, keyName, sent)); err != nil {
				return fmt.Errorf("set header: %w", err)
			}
		}
		return handler(srv, &believing{stream, c.ctx})
	}
}

// believing is a stream without metadata that only a server may say.
type believing struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the stream's own
}

// Context is the stream's.
func (b *believing) Context() context.Context { return b.ctx }

// disbelieve drops what only the server may say (rule K7).
func disbelieve(ctx context.Context) context.Context {
	forged := func(name string) bool {
		return name != keyName && len(metadata.ValueFromIncomingContext(ctx, name)) > 0
	}
	if !slices.ContainsFunc(ownNames(), forged) {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	for _, name := range ownNames() {
		if name != keyName {
			md.Delete(name)
		}
	}
	return metadata.NewIncomingContext(ctx, md)
}

func badSetting(field, text string) error {
	return configError("check configuration", field+" "+text)
}
