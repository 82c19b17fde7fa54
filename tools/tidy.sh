#!/usr/bin/env bash
# Checks that the go.mod and go.sum of every module say what its code imports, and
# that the modules on disk are the ones that go.sum names. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off

failed=0
for module in . adapters apps bench tools; do
	echo "== $module"
	(cd "$module" && go mod tidy -diff) || failed=1
	(cd "$module" && go mod verify) || failed=1
done
exit "$failed"
