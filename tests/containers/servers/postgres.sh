# What the official image does that docker-compose.yml relies on: a database, a password and scripts at the first start.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username=postgres --pwfile=<(printf '%s' "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=scram-sha-256 -D "$PGDATA" > /dev/null
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "host replication all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$PGDATA" postgres > /dev/null
    export PGHOST=/tmp
    pg_ctl -D "$PGDATA" -w -o "-c listen_addresses='' -c unix_socket_directories=/tmp" start > /dev/null
    for script in /docker-entrypoint-initdb.d/*.sh; do . "$script"; done
    pg_ctl -D "$PGDATA" -w stop > /dev/null
    unset PGHOST
fi
exec "$@" -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp
