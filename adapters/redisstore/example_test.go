package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
)

// A store on a cluster, whose claims count when a replica has confirmed them. What
// the servers may lose all the same is written to the log. Here nobody listens.
func ExampleOpen() {
	store, err := redisstore.Open(context.Background(), "redis+cluster://127.0.0.1:1?addr=127.0.0.1:2&max_redirects=-1",
		redisstore.Config{
			WaitReplicas: 1,
			WaitTimeout:  500 * time.Millisecond,
			Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
	if err != nil {
		fmt.Println("unreachable:", errors.Is(err, onlyonce.ErrUnreachable))
		return
	}
	defer store.Close()
	fmt.Println(store.Features().Name)
	// Output: unreachable: true
}

// Settings are checked before anything is connected to.
func ExampleConfig_Validate() {
	err := redisstore.Config{Prefix: "{acct}:", WaitReplicas: -1}.Validate()
	fmt.Println(err)
	// Output:
	// configure redisstore: invalid_config: Prefix must be at most 64 letters, digits and : _ - . characters, got "{acct}:"
	// configure redisstore: invalid_config: WaitReplicas must not be negative, got -1
}
