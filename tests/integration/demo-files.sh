# The demo removes only files that it writes itself, and makes a new recording: that of an earlier
# run, complete or not, must be removed, because otherwise the server records to another file, and
# the demo reports the earlier run. A binary that always fails ends the demo right after it has
# prepared the directory.
. "$(dirname "$0")/lib.sh"
need python3
printf '#!/bin/sh\nexit 1\n' >failing
chmod +x failing
recording="demo.parquet demo.parquet.partial demo.parquet.partial.index"
own="info.json live.json mrc.html one-tier-simulated.json plan.json report.html"
others="mine.json mine.html demo-2.parquet notes.parquet two.toml"

# run NAME=VALUE ...: runs the demo with a directory that has files of an earlier run and of the
# user.
run() {
    rm -rf out
    mkdir out
    for file in $recording $own $others; do : >"out/$file"; done
    env FOREBAY="$WORK/failing" TMPDIR="$WORK" "$@" "$ROOT/scripts/demo.sh" "$WORK/out" >demo.log 2>&1 \
        && fail "the demo cannot succeed here: $(cat demo.log)"
    for file in $others; do [ -e "out/$file" ] || fail "with '$*', the demo removed $file"; done
    for file in $own; do
        [ ! -e "out/$file" ] || fail "with '$*', the demo kept $file: $(cat demo.log)"
    done
}

run
for file in $recording; do
    [ ! -e "out/$file" ] || fail "the server cannot record to demo.parquet: $(cat demo.log)"
done
# If the user names a recording, the demo measures it.
run TRACE="$WORK/out/demo.parquet"
[ -e out/demo.parquet ] || fail "the demo removed the trace that it was to measure"
