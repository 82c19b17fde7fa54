#!/usr/bin/env bash
# Installs the servers that the tests start themselves, where they are missing, from
# Debian's packages: PostgreSQL and PgBouncer, MariaDB with Galera, Redis, RabbitMQ,
# NATS, and Node for what runs on it. It needs root or sudo, and leaves a system alone
# that has them. No system service is made or started.
set -euo pipefail

# What has to be there: a program or a file, and the package that brings it.
wanted=(
	"postgres postgresql"
	"pgbouncer pgbouncer"
	"mariadbd mariadb-server"
	"mariadb mariadb-client"
	"/usr/lib/galera/libgalera_smm.so galera-4"
	"rsync rsync"
	"redis-server redis-server"
	"redis-cli redis-tools"
	"/usr/lib/rabbitmq/bin/rabbitmq-server rabbitmq-server"
	"nats-server nats-server"
	"node nodejs"
	"npm npm"
)

have() {
	[ -e "$1" ] || compgen -c "$1" | grep -x "$1" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null ||
		[ -x "/usr/sbin/$1" ]
}

missing=()
for line in "${wanted[@]}"; do
	read -r file package <<<"$line"
	have "$file" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
	echo "servers: all are there"
	exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo "servers: missing ${missing[*]}; install them as root, or run: sudo make servers" >&2
		exit 1
	fi
	as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null; then
	echo "servers: missing ${missing[*]}; install them with this system's package manager" >&2
	exit 1
fi

apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

# What stops Debian's packages from starting a service of their own. Both files are
# taken away again, unless they were there before.
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.d/onlyonce.conf
undo=()
restore() {
	for file in "${undo[@]}"; do "${as_root[@]}" rm -f "$file"; done
}
trap restore EXIT

put() { # put FILE MODE TEXT
	if [ ! -e "$1" ]; then
		undo+=("$1")
		"${as_root[@]}" mkdir -p "$(dirname "$1")"
		printf '%s\n' "$3" | "${as_root[@]}" tee "$1" >/dev/null
		"${as_root[@]}" chmod "$2" "$1"
	fi
}

echo "servers: installing ${missing[*]}"
put "$policy" 755 $'#!/bin/sh\nexit 101'
apt update
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
	# First what makes clusters, then the word that none is wanted, then the server.
	apt install --no-install-recommends postgresql-common >/dev/null
	put "$cluster" 644 'create_main_cluster = false'
fi
apt install --no-install-recommends "${missing[@]}" >/dev/null
# Nor may one start at the next boot; a cluster of PostgreSQL to start there is none.
if command -v systemctl >/dev/null; then
	for service in pgbouncer mariadb redis-server rabbitmq-server nats-server; do
		if [[ " ${missing[*]/mariadb-server/mariadb} " == *" $service "* ]]; then
			"${as_root[@]}" systemctl --quiet disable "$service" || true
		fi
	done
	if [[ " ${missing[*]} " == *" rabbitmq-server "* ]]; then # it brings Erlang's name server
		"${as_root[@]}" systemctl --quiet disable epmd.socket epmd.service || true
	fi
fi
echo "servers: installed"
