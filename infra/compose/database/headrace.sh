# Run by PostgreSQL's image when it makes the database, before anybody else reaches it: the edge's user, which reads and replicates and
# is no superuser; the publication of all tables, which takes a superuser. From elsewhere that user alone logs in: superusers do so
# inside the container.
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --set=password="$POSTGRES_PASSWORD" --username="${POSTGRES_USER:-postgres}" --dbname="$POSTGRES_DB" << 'SQL'
create role headrace login replication password :'password';
grant pg_read_all_data to headrace;
create publication headrace for all tables;
SQL
lines=$(awk '/^host/ && $3 == "all" { $3 = "headrace" } { print }' "$PGDATA/pg_hba.conf")
printf '%s\n' "$lines" > "$PGDATA/pg_hba.conf"
