package testserver

import (
	"slices"
	"testing"
)

// A server of one's own gets a fresh database too, and it is dropped with the test.
func TestExternalServer(t *testing.T) {
	c := NewCluster(t)
	t.Setenv(envPostgres, c.DSN())
	const count = "SELECT count(*) FROM pg_database WHERE datname LIKE 'onlyonce_test_%'"

	t.Run("a_database_of_its_own", func(t *testing.T) {
		dsn := Postgres(t)
		mustQuery(t, dsn, "CREATE TABLE charge (id int)")
		if got := mustQuery(t, c.DSN(), count); got != "1" {
			t.Errorf("databases on the server: %s, want 1", got)
		}
	})
	if got := mustQuery(t, c.DSN(), count); got != "0" {
		t.Errorf("databases left after the test: %s, want 0", got)
	}
}

func TestExternalServerRefusesOtherForms(t *testing.T) {
	t.Parallel()
	_, err := externalServer("host=/tmp password=hunter2")
	if err == nil {
		t.Fatal("took a DSN that is no URL")
	}
	wantContains(t, err.Error(), envPostgres, "postgres://")
}

func TestPostgresEnv(t *testing.T) {
	t.Parallel()
	got := postgresEnv("postgres://ann:p%40ss@db.example:6543/shop?sslmode=require")
	want := []string{
		"PGDATABASE=shop", "PGHOST=db.example", "PGPASSWORD=p@ss",
		"PGPORT=6543", "PGSSLMODE=require", "PGUSER=ann",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("postgresEnv = %v, want %v", got, want)
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	got := withDatabase("postgres://ann:secret@db/shop?sslmode=require", "fresh")
	if want := "postgres://ann:secret@db/fresh?sslmode=require"; got != want {
		t.Errorf("withDatabase = %s, want %s", got, want)
	}
}
