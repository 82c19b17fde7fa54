// Package testserver starts private, real servers for tests.
//
// A test binary that needs them wraps its run, so that every server has an
// owner and an end:
//
//	func TestMain(m *testing.M) { os.Exit(testserver.Run(m)) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		dsn := testserver.Postgres(t) // a fresh, empty database
//		...
//	}
//
// [Postgres] hands out databases of one cluster per test binary, started by the
// first test that asks. [NewCluster] gives a test a cluster of its own, to kill
// and to start again, [NewPair] one with a standby that follows commit by commit.
// [PgBouncer] puts a pooler in front of a database.
//
// [MySQL] hands out databases of one MariaDB per binary, [NewMariaDB] gives one to
// kill, [NewGalera] and [SharedGalera] a cluster of three nodes. [Redis] hands out
// databases of one Redis; [NewRedis], [NewRedisCluster] and [NewRedisFailover] give
// one of the test's own, three masters, and a master with a replica under Sentinel.
// [Dynalite] hands out one stand-in for DynamoDB per binary.
//
// [RabbitMQ] hands out virtual hosts of one RabbitMQ node per binary, [NewRabbitMQ] gives
// one to kill. [NATS] gives each test a server with JetStream.
//
// # What runs where
//
// Programs come from PATH or from the usual folders of Debian's and Red Hat's
// packages. Servers listen on 127.0.0.1 only, on a free port below the
// ephemeral range, and keep everything in one temporary folder. Most of
// them refuse to run as root, so under root they run as the user postgres.
// On Linux the kernel kills them with the test binary, whatever ends that, and
// the next run removes the folder that such an end leaves behind.
//
// # Environment
//
//   - ONLYONCE_TEST_POSTGRES: the URL of a server of one's own, as a user that may
//     create databases. [Postgres] then makes its databases there and drops them.
//   - ONLYONCE_TEST_MYSQL: the same for a server of MySQL's or MariaDB's, and [MySQL].
//   - ONLYONCE_TEST_REQUIRE=1: a missing server fails the test. Without it the
//     test is skipped, with a message that says what to install.
//   - ONLYONCE_TEST_FSYNC=off: the private cluster does not flush to disk. Faster,
//     and proves nothing about crashes of the machine.
package testserver
