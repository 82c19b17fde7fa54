#!/usr/bin/env bash
# Runs the tests of every module, suite by suite, and ends with a table of times and
# budgets. A suite that fails fails the run; one that is over its budget is marked.
# Extra arguments go to "go test".
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# name, budget in seconds, folder, packages. The rules of the tree are a suite of
# their own: what they say is not about the code that was just tested.
suites=(
	"root      300 .        product"
	"adapters  400 adapters ./..."
	"apps      400 apps     ./..."
	"bench      40 bench    ./..."
	"rules      60 .        rules"
)

packages() { # packages PATTERN
	case $1 in
	product) go list ./... | grep -v -e '/internal/lint' -e '/internal/deptest' ;;
	rules) go list ./internal/lint/... ./internal/deptest/... ;;
	*) go list "$1" ;;
	esac
}

suite() { # suite NAME DIR PATTERN ARGUMENT...
	local name=$1 dir=$2 pattern=$3 list
	shift 3
	cd "$dir" || return
	list=$(packages "$pattern") || return
	if [ "$name" = rules ]; then
		# The numbers behind the rules, whether they hold or not.
		go test -count=1 -v -run '^TestTreeReport$' ./internal/lint | grep -v -e '^===' -e '^PASS'
	fi
	# shellcheck disable=SC2086 # a list of packages
	go test -race -count=1 -timeout "${TEST_TIMEOUT:-15m}" "$@" $list
}

# Every store's suites add a line here.
ONLYONCE_STORETEST_REPORT=$(mktemp)
export ONLYONCE_STORETEST_REPORT
trap 'rm -f "$ONLYONCE_STORETEST_REPORT"' EXIT

failed=0 total=0 table=()
for line in "${suites[@]}"; do
	read -r name budget dir pattern <<<"$line"
	printf '\n== %s\n' "$name"
	SECONDS=0
	verdict=ok
	(suite "$name" "$dir" "$pattern" "$@") || { verdict=FAIL failed=1; }
	took=$SECONDS
	total=$((total + took))
	[ "$took" -gt "$budget" ] && verdict="$verdict, over budget"
	table+=("$(printf '%-10s %6ds %6ds  %s' "$name" "$took" "$budget" "$verdict")")
done

printf '\nWhat the stores were examined for: rules kept, not promised (skipped), broken\n'
sort -u "$ONLYONCE_STORETEST_REPORT" | awk -F '\t' '{ printf "%-13s %-68s %4d %4d %4d\n", $1, $2, $3, $4, $5 }'
printf '\n%-10s %7s %7s\n' suite took budget
printf '%s\n' "${table[@]}"
printf '%-10s %6ds %6ds\n' all "$total" 1200
exit "$failed"
