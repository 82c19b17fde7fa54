package oncegrpc

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// statusHeader has the code in an answer's header, as on the wire.
const statusHeader = "Grpc-Status"

// arrived is what came of an attempt.
type arrived struct {
	header, trailer metadata.MD
	status          *status.Status
	body            []byte
	now             func() time.Time
}

// reply makes a reply of it.
func (a arrived) reply(ctx context.Context, err error) onceclient.Reply {
	w := word{a.header, a.trailer}
	var r onceclient.Reply
	r.Verdict, r.BeforeKey = decide(a.status, w)
	r.Replayed = w.replayed()
	r.Reference = reference(a.status)
	if a.spoken() {
		r.Answer = a.answer()
	}
	switch r.Verdict {
	case onceclient.Again:
		r.RetryAfter = retryAfter(a.status, w, a.now())
		r.Err = because(ctx, err)
	case onceclient.Unclear:
		r.Err = err
	case onceclient.Done, onceclient.Denied, onceclient.Unsent:
	}
	return r
}

// spoken tells whether a server has said it. A connection that breaks and a time that
// is over have codes, too, and neither metadata nor details.
func (a arrived) spoken() bool {
	switch a.status.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return len(a.trailer)+len(a.status.Proto().GetDetails()) > 0
	default:
		return true
	}
}

// answer is what a journal keeps of it: metadata as a header, that of the trailer under
// http.TrailerPrefix, and as the body the message, or else the status.
func (a arrived) answer() *onceclient.Answer {
	answer := &onceclient.Answer{Status: httpStatus(a.status.Code()), Header: http.Header{}, Body: a.body}
	addHeader(answer.Header, "", a.header)
	addHeader(answer.Header, http.TrailerPrefix, a.trailer)
	answer.Header[statusHeader] = []string{strconv.FormatUint(uint64(a.status.Code()), 10)}
	if a.status.Code() != codes.OK {
		// No error: its strings were made valid UTF-8 when it was read.
		answer.Body, _ = proto.Marshal(a.status.Proto())
	}
	return answer
}

// Unmarshal reads an answer that came over gRPC, as [onceclient.Client.Resume] gives
// them, into a message. The error is the server's, with its status, where it answered
// with one, and an *onlyonce.Error where the answer is none of gRPC's or of another
// message.
func Unmarshal(answer *onceclient.Answer, reply proto.Message) error {
	st, err := StatusOf(answer)
	if err != nil {
		return err
	}
	if st.Code() != codes.OK {
		return st.Err()
	}
	if err := proto.Unmarshal(answer.Body, reply); err != nil {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "read answer", Err: err,
			Hint: fmt.Sprintf("the answer is no %s; the operation was done all the same", reply.ProtoReflect().Descriptor().FullName()),
		}
	}
	return nil
}

// StatusOf is the status of an answer that came over gRPC.
func StatusOf(answer *onceclient.Answer) (*status.Status, error) {
	none := configError("read answer", "it did not come over gRPC")
	if answer == nil {
		return nil, none
	}
	code, err := strconv.ParseUint(answer.Header.Get(statusHeader), 10, 32)
	if err != nil {
		return nil, none
	}
	if codes.Code(code) == codes.OK {
		return status.New(codes.OK, ""), nil
	}
	var p spb.Status
	if err := proto.Unmarshal(answer.Body, &p); err != nil || p.GetCode() == 0 {
		return status.New(codes.Code(code), "the answer's body is no status"), nil
	}
	return status.FromProto(&p), nil
}

// metadataOf takes the metadata of header and trailer out of an answer.
func metadataOf(answer *onceclient.Answer) (header, trailer metadata.MD) {
	header, trailer = metadata.MD{}, metadata.MD{}
	for name, values := range answer.Header {
		md := header
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			name, md = rest, trailer
		} else if name == statusHeader {
			continue
		}
		name = strings.ToLower(name)
		for _, v := range values {
			if raw, err := base64.StdEncoding.DecodeString(v); err == nil && strings.HasSuffix(name, binarySuffix) {
				v = string(raw)
			}
			md[name] = append(md[name], v)
		}
	}
	return header, trailer
}

// httpStatus is the HTTP status that goes with a code, as in google.rpc.Code.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499 // there is none; this one is used for it
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return http.StatusInternalServerError
	default:
		return http.StatusInternalServerError
	}
}
