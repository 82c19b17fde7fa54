package deptest

import "strings"

const (
	adapters = Root + "/adapters"
	apps     = Root + "/apps"
	bench    = Root + "/bench"
)

// lightLibraries are what the root module may use besides the standard library.
var lightLibraries = []string{
	"github.com/dunglas/httpsfv",
	"github.com/go-json-experiment/json",
}

// testLibraries help tests only.
var testLibraries = []string{
	"testing",
	"pgregory.net/rapid",
	"go.uber.org/goleak",
	"github.com/google/go-cmp",
	"github.com/anishathalye/porcupine",
}

// testPackages exist for tests, so they may use what tests use.
var testPackages = []string{
	Root + "/storetest",
	Root + "/storefault",
	Root + "/oncetest",
	Root + "/onceclient/journaltest",
	Root + "/internal/testserver",
	Root + "/apps/internal/apptest",
	adapters + "/internal/consumetest",
	apps + "/tests",
	bench,
}

func rootStandsAlone(from, to string) string {
	if from == Root && within(to, Root) {
		return "the root package is the domain, which every other package stands on; " +
			"move what it needs into it, or take it as an interface"
	}
	return ""
}

func inRootModule(path string) bool {
	return within(path, Root) && !withinAny(path, adapters, apps, bench)
}

func rootModuleIsLight(from, to string) string {
	if !inRootModule(from) || standard(to) || inRootModule(to) || withinAny(to, lightLibraries...) {
		return ""
	}
	if withinAny(to, testLibraries...) && withinAny(from, testPackages...) {
		return ""
	}
	return "whoever uses the root module gets all that it imports; " +
		"put what needs a driver or a library into adapters or apps"
}

func adaptersAreStrangers(from, to string) string {
	if !within(from, adapters) || !within(to, adapters) {
		return ""
	}
	to, from = adapter(to), adapter(from)
	if to == from || to == "" || to == "internal" {
		return ""
	}
	return "adapters never import each other, so that a user of one does not pay for another; " +
		"put what they share into the root module or into adapters/internal"
}

// adapter returns the first folder below adapters.
func adapter(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, adapters), "/"), "/")
	return name
}

func onlyAppsKnowsAdapters(from, to string) string {
	if !within(to, adapters) || withinAny(from, adapters, apps, bench) {
		return ""
	}
	return "only apps, and bench which measures them, know the adapters; take an interface of the root module"
}

func nothingImportsBench(from, to string) string {
	if !within(to, bench) || within(from, bench) {
		return ""
	}
	return "bench measures the others and is no part of them; move what is shared into what is measured"
}

func testLibrariesStayInTests(from, to string) string {
	if !withinAny(to, testLibraries...) || withinAny(from, testPackages...) {
		return ""
	}
	return "a library for tests does not belong into what users run; move this into a _test.go file"
}
