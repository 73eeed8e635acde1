#!/usr/bin/env bash
# Sets up LiteLLM's proxy in a directory and serves it until it is interrupted:
#   bench/overspend/litellm.sh serve DIR
# Prints a fresh virtual key that may spend $CAP dollars:
#   bench/overspend/litellm.sh key
# Needs python3 with venv, PostgreSQL's server and client, redis-server and curl.
# STRICT=false leaves LiteLLM's own setting for budgets; PROVIDER, PORT,
# REDIS_PORT and PG_PORT say where things are.
set -euo pipefail
self=$(realpath "$0")
version=1.106.2
provider=${PROVIDER:-http://127.0.0.1:9100/v1} port=${PORT:-4000} redis=${REDIS_PORT:-6390} pg=${PG_PORT:-5490}
master=sk-bench-master

if [ "${1:-}" = key ]; then
	curl -sS --fail-with-body "http://127.0.0.1:$port/key/generate" -H "Authorization: Bearer $master" -H 'Content-Type: application/json' \
		-d "{\"models\": [\"bench\"], \"max_budget\": $CAP}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["key"])'
	exit
fi
[ "${1:-}" = serve ] && [ -n "${2:-}" ] || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$2"
cd "$2"
export PATH=$PWD/env/bin:$PATH
if [ ! -e env/ready ]; then
	python3 -m venv env
	pip install -q "litellm[proxy]==$version" prisma==0.15.0
	prisma generate --schema "$(echo env/lib/python*/site-packages/litellm/proxy/schema.prisma)"
	touch env/ready
fi

cat >config.yaml <<EOF
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: $provider
      api_key: any
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.00001
general_settings:
  master_key: $master
  fail_closed_budget_enforcement: ${STRICT:-true}
  always_include_stream_usage: true   # a stream costs what the provider says
  coordination_redis: {host: 127.0.0.1, port: $redis}
litellm_settings:
  num_retries: 0
EOF

# A database and a store of their own, gone when this ends. PostgreSQL does not run as root.
data=$(mktemp -d)
as=()
[ "$(id -u)" != 0 ] || { as=(runuser -u postgres --); chown postgres "$data"; }
bin=$(dirname "$(ls -1 "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb 2>/dev/null | tail -n 1)")
(cd / && "${as[@]}" "$bin/initdb" -D "$data/pg" -A trust -U litellm >/dev/null)
ulimit -n "$(ulimit -Hn)"
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$data"' EXIT
trap exit INT TERM
(cd / && exec "${as[@]}" "$bin/postgres" -D "$data/pg" -p "$pg" -c listen_addresses=127.0.0.1 -k "$data") >postgres.log 2>&1 &
started+=($!)
redis-server --port "$redis" --bind 127.0.0.1 --save "" --dir "$data" >redis.log 2>&1 &
started+=($!)
sql() { psql -q -h 127.0.0.1 -p "$pg" -U litellm -v ON_ERROR_STOP=1 "$@" >>postgres.log 2>&1; }
until sql -d postgres -c 'create database litellm'; do
	kill -0 "${started[@]}" || { tail -n 5 postgres.log redis.log >&2; exit 1; }
	sleep 1
done
files=()
for m in env/lib/python*/site-packages/litellm_proxy_extras/migrations/*/migration.sql; do files+=(-f "$m"); done
sql -d litellm "${files[@]}"

LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR DISABLE_SCHEMA_UPDATE=true DATABASE_URL=postgresql://litellm@127.0.0.1:$pg/litellm \
	litellm --config config.yaml --host 127.0.0.1 --port "$port" --telemetry False >proxy.log 2>&1 &
started+=($!)
until CAP=1 PORT=$port "$self" key >/dev/null 2>&1; do
	kill -0 "${started[@]}" || { tail -n 5 proxy.log >&2; exit 1; }
	sleep 1
done
echo "LiteLLM $version at http://127.0.0.1:$port/v1, strict: ${STRICT:-true}"
wait "${started[2]}"
