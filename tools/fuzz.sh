#!/usr/bin/env bash
# Runs every fuzz test of every module for a while: FUZZTIME each, 20s by default.
set -euo pipefail
cd "$(dirname "$0")/.."

for module in . adapters apps bench; do
	(
		cd "$module"
		for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do
			for name in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
				echo "== $package $name"
				go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-20s}" "$package"
			done
		done
	)
done
