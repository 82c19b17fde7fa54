package pgstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// sight is what a claim finds, as of one moment.
type sight struct {
	// key is the key's record; nil: there is none.
	key *reading
	// holder is the record of another key that holds the resource; nil: none
	// does, or none was named.
	holder *reading
}

// read reads a key; nil if there is none.
func (s *Store) read(ctx context.Context, c contender, key onlyonce.Key) (*reading, error) {
	at, err := s.see(ctx, c, key, "")
	return at.key, err
}

// see reads a key and, where a resource is named, who else holds that.
func (s *Store) see(ctx context.Context, c contender, key onlyonce.Key, resource string) (at sight, err error) {
	row, d := &keyRow{}, key.Digest()
	if resource == "" {
		st := s.readStmt(d, row)
		if err := c.read(ctx, st); err != nil {
			return at, err
		}
		at.key, err = row.found(st, key)
		return at, err
	}
	held := onlyonce.ResourceDigest(key.Scope, resource)
	var own bool
	st := &stmt{sql: s.sql.readBoth, args: []any{d[:], s.now(), held[:]}, dest: append(row.dest(), &own)}
	st.each = func() (err error) {
		if own {
			at.key, err = row.of(key)
		} else {
			at.holder, err = row.holder(key.Scope, resource)
		}
		return err
	}
	err = c.read(ctx, st)
	return at, err
}

// heldBy is the claim's result when somebody holds its resource; none when nobody
// does any more. A record that has expired holds nothing: it lets go of the
// resource, unless it is changed or worked on meanwhile, which the claim then runs
// into.
func (s *Store) heldBy(ctx context.Context, c contender, holder *reading) (onlyonce.Claim, error) {
	switch {
	case holder == nil:
		return onlyonce.Claim{}, nil
	case holder.Holds && !holder.Expired(holder.now):
		return onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: holder.Record, Remaining: holder.LeaseEnd.Sub(holder.now)}, nil
	case !c.takesHold():
		return onlyonce.Claim{}, nil
	}
	return onlyonce.Claim{}, s.write(ctx, "let go of resource", s.owned(s.sql.letGoKey, holder.Owner(), s.now()))
}

// digestOf is what a record that holds its resource is indexed by; nil: it holds
// none.
func digestOf(rec onlyonce.Record) []byte {
	if !rec.Holds {
		return nil
	}
	d := onlyonce.ResourceDigest(rec.Key.Scope, rec.Resource)
	return d[:]
}
