#!/bin/sh
# A backup of everything into a new folder, while Cuscuta runs: deploy/backup/backup.sh FOLDER
#
# Needs `nats` (the NATS command line) and pg_dump. From the environment: CUSCUTA_POSTGRES_URL; NATS_URL, NATS_USER and
# NATS_PASSWORD of the user `backup` (deploy/nats/users.conf). The keys, CUSCUTA_SECRET_KEYS and CUSCUTA_SEAL_KEYS, are
# not in it: without them the accounts in it are useless, so keep them, and keep them elsewhere.
#
# The parts are copied one after another. What does not fit together after a restore the reaper mends: tags come last,
# so that whatever they speak of is there.
set -eu
folder="${1:?say where to: deploy/backup/backup.sh FOLDER}"
: "${CUSCUTA_POSTGRES_URL:?is not set}"
umask 077
mkdir "$folder"
mkdir "$folder/streams"
pg_dump --format=custom --no-owner --file="$folder/postgres.dump" "$CUSCUTA_POSTGRES_URL"
for stream in CUSCUTA_WORK CUSCUTA_SCHEDULES CUSCUTA_EVENTS CUSCUTA_DEAD KV_cuscuta_active KV_cuscuta_schedules \
              KV_cuscuta_catalogues KV_cuscuta_results KV_cuscuta_tags; do
  nats --inbox-prefix _INBOX.backup backup stream --consumers --no-progress "$stream" "$folder/streams/$stream"
done
echo "backed up into $folder"
