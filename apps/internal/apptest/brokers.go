package apptest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// kafkaEnv names the brokers of a real Kafka, joined by commas, which the tests of Kafka
// then run on.
const kafkaEnv = "ONLYONCE_TEST_KAFKA"

// Brokers are what tests of events run on: functions that make a place for events on
// which nothing was published, by the name of its kind, and return its URL. A broker that
// is not installed skips its test.
func Brokers() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"rabbitmq": func(t *testing.T) string { t.Helper(); return testserver.RabbitMQ(t) },
		"nats":     func(t *testing.T) string { t.Helper(); return testserver.NATS(t).URL() },
		"kafka":    Kafka,
	}
}

// Kafka is the URL of a topic that is not there yet: on the Kafka that ONLYONCE_TEST_KAFKA
// names, or on a cluster in this process, whose sessions may be short.
func Kafka(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test.%x", rand.Uint64())
	if addrs := os.Getenv(kafkaEnv); addrs != "" {
		return "kafka://" + addrs + "?session=6s&name=" + name
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(8), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return "kafka://" + strings.Join(cluster.ListenAddrs(), ",") + "?session=2s&name=" + name
}
