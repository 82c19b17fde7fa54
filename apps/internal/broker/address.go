package broker

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// DefaultName is what the events are called at a broker whose URL does not say it.
const DefaultName = "payments.events"

// DefaultSession is how long the partitions of a consumer that was killed are idle, on
// Kafka. Its brokers refuse less than 6 s by default.
const DefaultSession = 10 * time.Second

// Address is a broker, and what the events are called there.
//
//   - amqp://USER:PASSWORD@HOST:5672/VHOST, amqps://…: the name is that of a durable topic
//     exchange; each consumer has a durable queue NAME.CONSUMER.
//   - nats://HOST:4222, tls://…: the name begins the subjects, NAME.KIND; the stream is
//     called the same, with - for each point.
//   - kafka://HOST:9092,HOST:9092: the name is that of a topic. There is no encryption
//     and no password. ?session=10s is how long the partitions of a consumer that was
//     killed are idle.
//
// ?name=NAME changes the name.
type Address struct {
	kind kind
	// url is what the broker's client is given: without our parameter.
	url string
	// seeds are the hosts of Kafka.
	seeds   []string
	session time.Duration
	name    string
}

// kind is which broker.
type kind uint8

const (
	rabbitMQ kind = iota + 1
	jetStream
	kafka
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// maxName leaves room for a consumer's name within the shortest limit of the brokers.
const maxName = 100

// Parse reads a broker's URL. It connects to nothing. What cannot be is an
// *onlyonce.Error with CodeConfig, which does not repeat the URL: there may be a
// password in it.
func Parse(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, refuse("cannot be read")
	}
	query := u.Query()
	a := Address{name: DefaultName}
	if query.Has("name") {
		a.name = query.Get("name")
		query.Del("name")
		u.RawQuery = query.Encode()
	}
	if !validName.MatchString(a.name) || len(a.name) > maxName {
		return Address{}, refuse("has a name that is not 1 to %d letters, digits, -, _ and points between them", maxName)
	}
	if u.Host == "" {
		return Address{}, refuse("names no host")
	}
	switch u.Scheme {
	case "amqp", "amqps":
		a.kind = rabbitMQ
	case "nats", "tls":
		a.kind = jetStream
	case "kafka":
		return a.ofKafka(u)
	default:
		return Address{}, refuse("names no broker that this program knows")
	}
	a.url = u.String()
	return a, nil
}

// ofKafka reads the hosts, of which there may be several.
func (a Address) ofKafka(u *url.URL) (Address, error) {
	if u.User != nil {
		return Address{}, refuse("has a password, which this program does not send to Kafka: it would go unencrypted")
	}
	query := u.Query()
	a.session = DefaultSession
	if query.Has("session") {
		var err error
		if a.session, err = time.ParseDuration(query.Get("session")); err != nil || a.session < time.Second {
			return Address{}, refuse("has a session that is no time of a second or more, like 10s")
		}
		query.Del("session")
	}
	if strings.Trim(u.Path, "/") != "" || len(query) > 0 {
		return Address{}, refuse("has a path or parameters that mean nothing to Kafka: the topic is ?name=NAME")
	}
	a.kind, a.seeds = kafka, strings.Split(u.Host, ",")
	for i, seed := range a.seeds {
		if _, _, err := net.SplitHostPort(seed); err != nil {
			a.seeds[i] = net.JoinHostPort(seed, "9092")
		}
	}
	return a, nil
}

// String is where the events are, without user and password.
func (a Address) String() string {
	if a.kind == kafka {
		return "kafka://" + strings.Join(a.seeds, ",") + " (" + a.name + ")"
	}
	u, err := url.Parse(a.url)
	if err != nil {
		return a.name
	}
	return u.Scheme + "://" + u.Host + " (" + a.name + ")"
}

func refuse(format string, args ...any) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "read events URL",
		Hint: "the URL " + fmt.Sprintf(format, args...) +
			"; use amqp://USER:PASSWORD@HOST:5672/VHOST, nats://HOST:4222 or kafka://HOST:9092,HOST:9092, with ?name=NAME for another name than " + DefaultName,
	}
}
