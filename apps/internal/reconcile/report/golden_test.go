package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
)

var update = flag.Bool("update", false, "write the texts of errors into testdata")

// Every file in testdata/broken holds a broken report, a line of dashes, and what
// is said about it: where it is broken, and what to do. A first line "# FORMAT" is
// the format. Some characters that editors eat are written \r, \0, \xff and \x01.
func TestBroken(t *testing.T) { // X2
	t.Parallel()
	files, err := filepath.Glob("testdata/broken/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	unescape := strings.NewReplacer(`\r`, "\r", `\0`, "\x00", `\xff`, "\xff", `\xfe`, "\xfe", `\x01`, "\x01", `\long`, strings.Repeat("x", 256), `\huge`, strings.Repeat("line\n", 300_000))
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			given, want, _ := strings.Cut(string(text), "-----\n")
			format, body, ok := strings.Cut(strings.TrimPrefix(given, "# "), "\n")
			if !ok {
				t.Fatal("it has no format")
			}
			rows, _, err := all(unescape.Replace(body), formatOf(t, format))
			e, broken := err.(*report.Error) //nolint:errorlint // it is not wrapped, so that a command shows it as it is
			if !broken || rows != nil || e.Hint == "" {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			got := e.Error() + "\nhint: " + e.Hint + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(given+"-----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != want && !*update {
				t.Errorf("it says\n%swant\n%s", got, want)
			}
		})
	}
}

func formatOf(t *testing.T, name string) report.Format {
	t.Helper()
	switch name {
	case "major":
		return own(t, map[string]string{"type": "type", "id": "id", "amount": "amount", "currency": "currency", "created": "created"})
	default:
		return named(t, name)
	}
}
