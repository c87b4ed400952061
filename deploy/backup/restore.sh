#!/bin/sh
# What backup.sh has made, into an empty NATS and an empty database, before any part is started:
# deploy/backup/restore.sh FOLDER, with the same environment and `pg_restore`. Then start reaper, entry and workers.
set -eu
folder="${1:?say where from: deploy/backup/restore.sh FOLDER}"
: "${CUSCUTA_POSTGRES_URL:?is not set}"
for stream in "$folder"/streams/*; do
  name=$(basename "$stream")
  if nats --inbox-prefix _INBOX.backup stream info "$name" > /dev/null 2>&1; then
    echo "$name is there already: stop all parts and restore into an empty NATS" >&2
    exit 1
  fi
done
pg_restore --clean --if-exists --no-owner --exit-on-error --dbname="$CUSCUTA_POSTGRES_URL" "$folder/postgres.dump"
for stream in "$folder"/streams/*; do
  nats --inbox-prefix _INBOX.backup backup restore stream --no-progress "$stream"
done
echo "restored from $folder"
