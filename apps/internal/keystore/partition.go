package keystore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

// Partitions are the time partitions of PostgreSQL's tables; the zero value is none.
type Partitions struct {
	// Every is how long a period is, Ahead how many whole ones are ready.
	Every time.Duration
	Ahead int
}

// Partition migrates as Migrate does, and then gives the tables of keys partitions
// (pgstore.Partition), also those that are in use. Tables that have such partitions
// already stay; of others, and of another kind of store than PostgreSQL, it returns a
// CodeConfig error. A crash leaves the tables with all partitions, or with none.
func Partition(ctx context.Context, url string, p Partitions) error {
	k, err := find(url)
	if err != nil {
		return err
	}
	b, ok := k.backend.(postgres)
	if !ok {
		return configError("partition tables", "only postgres:// has time partitions, a store of the kind "+k.schemes[0]+" has none")
	}
	return b.migrateAs(ctx, url, pgstore.Partition{Every: p.Every, Ahead: p.Ahead})
}

// PartitionsOf reads which partitions the tables have. It makes nothing.
func PartitionsOf(ctx context.Context, url string) (Partitions, error) {
	k, err := find(url)
	if err != nil {
		return Partitions{}, err
	}
	b, ok := k.backend.(postgres)
	if !ok {
		return Partitions{}, nil
	}
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return Partitions{}, err
	}
	defer pool.Close()
	name := table(schema, "onlyonce_partitions")
	var there bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, name).Scan(&there); err != nil || !there {
		return Partitions{}, failed("read partitions", err)
	}
	var seconds, slots int64
	err = pool.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM max(every)), 0)::bigint, count(*) FROM `+name).Scan(&seconds, &slots)
	// Two more than are ahead: of the present period, and one that is being emptied.
	return Partitions{time.Duration(seconds) * time.Second, int(max(slots-2, 0))}, failed("read partitions", err)
}
