package oncegrpc

import (
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// Canonical is what the server compares a request by, and the text of its policy.
func Canonical(method string, msg proto.Message, md metadata.MD, policy canon.Policy) (onlyonce.Canonicalizer, []byte, error) {
	p, err := newPlan(msg.ProtoReflect().Descriptor(), policy)
	if err != nil {
		return nil, nil, err
	}
	return canonical{method: method, msg: msg, header: md, plan: p}, p.text, nil
}
