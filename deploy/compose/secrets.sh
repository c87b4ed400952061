#!/bin/sh
# Passwords and keys for deploy/compose.yaml, into deploy/secrets, which only you can enter. Never overwrites one.
set -eu
folder="${1:-$(dirname "$0")/../secrets}"
if [ -e "$folder" ]; then
  echo "$folder is there already: remove it yourself, and with it the way to all stored passwords" >&2
  exit 1
fi
umask 077
mkdir -p "$folder"

key() { head -c 32 /dev/urandom | base64 | tr '+/' '-_'; }
word() { head -c 24 /dev/urandom | base64 | tr -d '+/='; }

postgres=$(word)
secret=$(key)
seal=$(key)
printf '%s' "$postgres" > "$folder/postgres-password"
cp "$(dirname "$0")/../nats/users.conf" "$folder/nats-users.conf"
for part in entry worker reaper inspector backup; do
  password=$(word)
  upper=$(echo "$part" | tr '[:lower:]' '[:upper:]')
  sed "s/[$]CUSCUTA_NATS_${upper}_PASSWORD/\"$password\"/" "$folder/nats-users.conf" > "$folder/draft"
  mv "$folder/draft" "$folder/nats-users.conf"
  case "$part" in entry | worker | reaper)
    {
      echo "nats_user = \"$part\""
      echo "nats_password = \"$password\""
      echo "postgres_url = \"postgresql://cuscuta:$postgres@postgres:5432/cuscuta\""
      echo "secret_keys = [\"$secret\"]"
      if [ "$part" != worker ]; then echo "seal_keys = [\"$seal\"]"; fi
    } > "$folder/$part.toml"
    ;;
  backup)
    {
      echo "NATS_URL=nats://nats:4222"
      echo "NATS_USER=$part"
      echo "NATS_PASSWORD=$password"
      echo "CUSCUTA_POSTGRES_URL=postgresql://cuscuta:$postgres@postgres:5432/cuscuta"
    } > "$folder/backup.env"
    ;;
  inspector)
    printf '%s' "$password" > "$folder/inspector-password"
    ;;
  esac
done
route=$(word)
cat > "$folder/nats-cluster.conf" <<END
cluster {
  name: "cuscuta"
  listen: "0.0.0.0:6222"
  authorization { user: "route", password: "$route" }
  routes: ["nats://route:$route@nats:6222", "nats://route:$route@nats-2:6222", "nats://route:$route@nats-3:6222"]
}
END
chmod 444 "$folder"/*   # containers read them as users of their own; the folder keeps everybody else out
echo "made $folder; keep a copy where secrets are kept"
