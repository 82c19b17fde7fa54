package bench_test

import (
	"os"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Run(m)) }
