package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisTimeout bounds one command.
const redisTimeout = 5 * time.Second

// redisDo sends one command on a connection of its own and returns the reply as
// text. It is all the client that starting servers needs.
func redisDo(address string, args ...string) (string, error) {
	d := net.Dialer{Timeout: redisTimeout}
	conn, err := d.DialContext(context.Background(), "tcp4", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // the reply is all that counts
	if err := conn.SetDeadline(time.Now().Add(redisTimeout)); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if len(args) == 2 && args[0] == "FLUSHDB" {
		if _, err := redisCommand(conn, r, "SELECT", args[1]); err != nil {
			return "", err
		}
		args = args[:1]
	}
	return redisCommand(conn, r, args...)
}

func redisCommand(conn net.Conn, r *bufio.Reader, args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return redisReply(r)
}

// redisReply reads a reply; the parts of a list come one a line.
func redisReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("redis: an empty reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New("redis: " + rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		return string(text[:n]), err
	case '*':
		n, err := strconv.Atoi(rest)
		var b strings.Builder
		for i := 0; i < n && err == nil; i++ {
			var part string
			part, err = redisReply(r)
			b.WriteString(part + "\n")
		}
		return b.String(), err
	default:
		return "", fmt.Errorf("redis: a reply of a kind that is not known: %q", line)
	}
}
