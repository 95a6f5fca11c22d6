# The alerts fire on artificial series; a real Prometheus scrapes a server and evaluates every alert
# and every query of the dashboard; and alerts fire there.
. "$(dirname "$0")/lib.sh"
need prometheus promtool curl python3 qemu-io
prometheus=
more_cleanup() {
    [ -z "$prometheus" ] || kill -KILL "$prometheus" 2>/dev/null || true
    [ "$code" = 0 ] || [ ! -s prometheus.log ] || tail -5 prometheus.log >&2
}
docs=$ROOT/docs
config flash size=64MiB
sed -i "s|^control = .*|control = \"tcp:127.0.0.1:0\"\ncontrol_token_file = \"$WORK/token\"\nconnections = 2|" forebay.toml
# Records a trace, so that the metrics of recordings change, too.
start --record x.parquet
control=$(sed -E 's/.*"control":"([^"]*)".*/\1/' ready)
ctl() { "$FOREBAY" ctl "$@" --control "$control" --token-file token; }
metrics() { curl -sf -H "Authorization: Bearer $(cat token)" "http://${control#tcp:}/metrics" >metrics; }

io 'write -P 1 0 4M' 'read -P 1 0 4M' 'discard 8M 1M' 'read 16M 8M' flush
metrics || fail "no metrics"
promtool check metrics <metrics >check.out 2>&1 || fail "promtool check metrics: $(cat check.out)"
[ ! -s check.out ] || fail "promtool check metrics: $(cat check.out)"
promtool check rules "$docs/alerts.yml" >check.out 2>&1 || fail "$(cat check.out)"
# Each alert fires on series made for it, and none fires where all is well.
promtool test rules "$HERE/monitoring-rules.yml" >check.out 2>&1 || fail "$(cat check.out)"
diff <(sed -n 's/.*- alert: //p' "$docs/alerts.yml" | sort) \
    <(sed -nE 's/.*alertname="(\w+)".*/\1/p' "$HERE/monitoring-rules.yml" | sort) \
    || fail "not every alert is tested"

# Prometheus as set up in docs/monitoring.md, but with shorter intervals.
cat >prometheus.yml <<END
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [$docs/alerts.yml]
scrape_configs:
  - job_name: forebay
    authorization: {credentials_file: $WORK/token}
    static_configs: [{targets: ["${control#tcp:}"]}]
END
promtool check config prometheus.yml >check.out 2>&1 || fail "$(cat check.out)"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address="127.0.0.1:$port" \
    >prometheus.log 2>&1 &
prometheus=$!
api="http://127.0.0.1:$port"
# rows EXPRESSION: prints the current number of series.
rows() {
    curl -sf --data-urlencode "query=$1" "$api/api/v1/query" \
        | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["data"]["result"]))'
}
# within SECONDS EXPRESSION: waits until the expression yields a series.
within() {
    for _ in $(seq $(($1 * 4))); do
        [ "$(rows "$2" 2>/dev/null || echo 0)" != 0 ] && return
        sleep 0.25
    done
    return 1
}
within 60 'up{job="forebay"} == 1' || fail "Prometheus cannot reach the server: $(curl -s "$api/api/v1/targets")"
# Makes the rates positive.
for n in 1 2 3 4; do
    io "write -P $n 0 1M" 'read 0 1M' "read $((24 + n * 4))M 4M" flush
    sleep 1
done
python3 "$HERE/monitoring.py" "$api" "$docs/alerts.yml" "$docs/grafana-dashboard.json" || fail "see above"
[ "$(rows 'ALERTS{alertstate="firing"}')" = 0 ] || fail "an alert fires that should not"

# Clients are held back: the expression of the alert yields a series, and the alert is pending for
# its five minutes.
ctl quiesce >/dev/null
qemu-io -f raw -c 'write -P 2 0 64k' "$URI" >/dev/null &
writer=$!
within 20 'forebay_quiesced == 1' || fail "the quiesce is not visible"
within 20 'ALERTS{alertname="ForebayQuiesced",alertstate="pending"}' || fail "no alert about the quiesce"
ctl quiesce --resume >/dev/null
wait $writer
within 20 'forebay_quiesced == 0' || fail "the end of the quiesce is not visible"

# More clients than allowed: the alert fires.
qemu-io -f raw -c 'sleep 3000' "$URI" >/dev/null &
qemu-io -f raw -c 'sleep 3000' "$URI" >/dev/null &
within 20 'forebay_connections == 2' || fail "the clients are not visible"
! timeout 30 qemu-io -f raw -c 'read 0 4k' "$URI" >/dev/null 2>&1 || fail "a third client was served"
within 30 'ALERTS{alertname="ForebayConnectionsRefused",alertstate="firing"}' \
    || fail "no alert about the refusal: $(curl -s "$api/api/v1/alerts")"
# The server stops: Prometheus notices.
stop || fail "the stop failed"
within 20 'up{job="forebay"} == 0' || fail "Prometheus does not notice that the server has gone"
within 20 'ALERTS{alertname="ForebayDown",alertstate="pending"}' || fail "no alert about the server that is gone"
