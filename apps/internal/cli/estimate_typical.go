package cli

import "math"

// typical are the footprints of the stores that we have measured, for answers of a
// size that do not compress. They follow from how the engines fill their pages, and
// from the bytes that a key has besides its answer (estimate's own keys have some
// fifty bytes of scope and key, and a hundred of fingerprint).
func typical(row int64) []footprint {
	return []footprint{
		{kind: "postgres", source: fromUs, table: smooth(row, postgresKey), index: 50},
		{kind: "sqlite", source: fromUs, table: smooth(row, sqliteKey), index: 45},
		{kind: "mysql", source: fromUs, table: smooth(row, innodbKey), index: 40},
	}
}

// smooth is the mean for answers of about a size. How many rows a page has changes
// in jumps, and no two answers are of the same size.
func smooth(row int64, key func(row float64) float64) float64 {
	sum := 0.0
	for _, more := range []float64{-80, -40, 0, 40, 80} {
		sum += key(max(float64(row)+more, 1))
	}
	return math.Round(sum / 5)
}

// PostgreSQL, as pgstore makes its table.
const (
	pgPage     = 8192
	pgFill     = pgPage / 2 // the fill factor: the rest is for the completed versions
	pgClaim    = 350.0      // the claimed version of a row
	pgDone     = 370.0      // the completed one, without the answer
	pgToast    = 2032       // the size above which an answer is moved to a table beside
	pgChunk    = 1996.0     // of an answer there
	pgChunkRow = 2048       // and what the chunk takes of its page
	pgTail     = 750        // for the last chunk, which fills a page badly
)

// postgresKey is the bytes of table that a key takes. A page takes claims until it is
// half full; each has its completed version beside it.
func postgresKey(row float64) float64 {
	done, beside := pgDone+row, 0.0
	if done > pgToast {
		done, beside = pgDone, row/pgChunk*pgChunkRow+pgTail
	}
	keys := math.Floor((pgFill-pgClaim)/(pgClaim+done)) + 1
	return pgPage/keys + beside
}

// SQLite, with its usual pages.
const (
	sqlitePage  = 4096
	sqliteRow   = 372.0           // a completed key without its answer
	sqliteCell  = 8.0             // pointer and lengths of a row
	sqliteLocal = sqlitePage - 35 // the longest row that stays on its page
	sqliteLeast = 489.0           // what stays of a longer one
	sqliteRest  = sqlitePage - 4  // of it on each page of its own
)

// sqliteKey is the bytes of table that a key takes: rows are whole on a page, and one
// that is longer continues on pages of its own.
func sqliteKey(row float64) float64 {
	size, beside := sqliteRow+row, 0.0
	if size > sqliteLocal {
		local := sqliteLeast + math.Mod(size-sqliteLeast, sqliteRest)
		if local > sqliteLocal {
			local = sqliteLeast
		}
		size, beside = local, math.Ceil((size-local)/sqliteRest)*sqlitePage
	}
	return sqlitePage/math.Floor(sqlitePage/(size+sqliteCell)) + beside
}

// InnoDB, with its usual pages, as mysqlstore makes its table. Figures are of MariaDB 11,
// with answers of 100 bytes to 12 KB.
const (
	innodbPage  = 16384
	innodbRow   = 400.0               // a completed key without its answer
	innodbFill  = 0.575               // of a page: keys come in no order, and split full ones
	innodbLocal = 8126                // the longest row that stays on its page
	innodbRest  = innodbPage - 38 - 8 // of an answer on each page of its own
)

// innodbKey is the bytes of table that a key takes. An answer that makes its row too long
// has pages of its own, however little of the last one it needs.
func innodbKey(row float64) float64 {
	size, beside := innodbRow+row, 0.0
	if size > innodbLocal {
		size, beside = innodbRow, math.Ceil(row/innodbRest)*innodbPage
	}
	return size/innodbFill + beside
}
