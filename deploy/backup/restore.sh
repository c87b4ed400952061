#!/bin/sh
# What backup.sh has made, into an empty NATS and an empty database, before any part is started:
# deploy/backup/restore.sh FOLDER, with the same environment and `pg_restore` and `psql`. Then start the parts, in any order.
# It looks at both before it writes anything, and touches nothing that is not empty.
set -eu
folder="${1:?say where from: deploy/backup/restore.sh FOLDER}"
: "${CUSCUTA_POSTGRES_URL:?is not set}"
standing=$(nats --inbox-prefix _INBOX.backup stream ls --names --all)   # whatever is wrong with NATS ends it here
for stream in "$folder"/streams/*; do
  if echo "$standing" | grep -qx "$(basename "$stream")"; then
    echo "$(basename "$stream") is there already: stop all parts and restore into an empty NATS" >&2
    exit 1
  fi
done
tables=$(psql --no-psqlrc --tuples-only --no-align --command="SELECT count(*) FROM pg_tables WHERE schemaname = 'public'" \
  "$CUSCUTA_POSTGRES_URL")
if [ "$tables" != 0 ]; then
  echo "the database has $tables tables: restore into an empty one" >&2
  exit 1
fi
pg_restore --no-owner --exit-on-error --single-transaction --dbname="$CUSCUTA_POSTGRES_URL" "$folder/postgres.dump"
for stream in "$folder"/streams/*; do
  nats --inbox-prefix _INBOX.backup backup restore stream --no-progress "$stream"
done
echo "restored from $folder"
