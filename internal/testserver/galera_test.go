package testserver

import (
	"testing"
)

// What one node commits all of them have, and two go on when the third is dead.
func TestGalera(t *testing.T) {
	t.Parallel()
	g := NewGalera(t)
	urls := g.Database(t)
	if len(urls) != g.Nodes() || g.Nodes() != 3 {
		t.Fatalf("%d nodes at %v", g.Nodes(), urls)
	}
	const sync = "SET SESSION wsrep_sync_wait = 7; "
	mysqlQuery(t, urls[0], "CREATE TABLE charge (id INT PRIMARY KEY); INSERT INTO charge VALUES (1)")
	mysqlQuery(t, urls[1], sync+"INSERT INTO charge VALUES (2)")
	if got := mysqlQuery(t, urls[2], sync+"SELECT SUM(id) FROM charge"); got != "3" {
		t.Errorf("the third node has %q, want 3", got)
	}
	if err := g.Kill(0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two nodes go on", func() bool { return g.nodes[1].synced(2) && !g.nodes[1].synced(3) })
	mysqlQuery(t, urls[1], sync+"INSERT INTO charge VALUES (4)")
	if got := mysqlQuery(t, urls[2], sync+"SELECT SUM(id) FROM charge"); got != "7" {
		t.Errorf("after a node's death another has %q, want 7", got)
	}
}
