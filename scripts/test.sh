#!/usr/bin/env bash
# Runs everything that a change must pass. Each step runs even if an earlier one failed; the last
# line is the count. A step is skipped, with the reason, if this machine lacks something it needs.
#
# The adversary runs in the background at the lowest priority, and its result is reported last: it
# needs minutes of processor time, which later steps leave idle while they wait for devices, clients
# and downloads. The scripts of tests/integration mostly wait, too, and run in the background once
# everything is built.
#
#   scripts/test.sh                  all steps
#   scripts/test.sh fmt clippy       these steps
#
# The whole output of each step is in target/test-logs/STEP.log.
set -uo pipefail
. "$(dirname "$0")/common.sh"

STEPS="setup lock fmt clippy scripts ruff tidy build adversary tests examples doc integration oracles readme python"
# These run in the background: the adversary at the lowest priority.
declare -A BESIDE=([adversary]="nice -n 19" [integration]="")
STEP_SECONDS_MAX="${STEP_SECONDS_MAX:-2400}"
SKIP=77

export TERM=dumb CARGO_TERM_COLOR=never RUST_BACKTRACE="${RUST_BACKTRACE:-1}"
logs=target/test-logs
# The directory into which cargo builds.
export built="${CARGO_TARGET_DIR:-$PWD/target}"
# A first build has nothing to reuse, and would write 9 GB of incremental data for the next one.
[ -d "$built/debug" ] || export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
mkdir -p "$logs"

skip() {
    say "skipped: $*"
    exit "$SKIP"
}

step_setup() { scripts/setup.sh; }

# All other steps resolve freely, so that a stale Cargo.lock is one failure and not eight.
step_lock() { cargo metadata --locked --format-version 1 >/dev/null; }

step_fmt() { cargo fmt --all --check; }

step_clippy() { cargo clippy --workspace --all-targets -- -D warnings; }

# Checks that dependencies have the same features with and without tests (see
# tests/tidy/Cargo.toml).
compiled_once() {
    local with without
    features() { cargo tree --workspace --prefix none -f '{p} {f}' -e "$1" | sed 's/ (\*)$//' | sort -u; }
    # Two assignments: a single one for both would only have the status of the second command.
    with="$(features normal,build,dev)" || return 1
    without="$(features normal,build)" || return 1
    if comm -13 <(printf '%s\n' "$with") <(printf '%s\n' "$without") | grep .; then
        say "these crates have fewer features in a build without tests, so they would be compiled twice"
        return 1
    fi
}

# Checks the shell scripts, that every mutant still applies to the source, and that the markers of
# figures in the documents name existing programs.
step_scripts() {
    local file files status=0
    mapfile -t files < <(git ls-files '*.sh' .ci/run tests/integration/run)
    for file in "${files[@]}"; do
        bash -n "$file" || status=1
    done
    if has shellcheck; then
        shellcheck --severity=warning "${files[@]}" || status=1
    else
        say "skipped: shellcheck is missing"
    fi
    compiled_once || status=1
    bench/figures.py --list >/dev/null || status=1
    if python3 -c 'import tomllib' 2>/dev/null; then
        tests/mutants/run --check || status=1
    else
        say "skipped: the list of mutants: Python 3.11 or newer is missing"
    fi
    return "$status"
}

step_ruff() {
    local files=('*.py' tests/mutants/run tests/oracles/run)
    [ -n "$(git ls-files "${files[@]}")" ] || skip "there is no Python here"
    if ! has ruff; then
        python3 -m venv target/ruff && target/ruff/bin/pip install -q ruff==0.14.5 \
            || skip "ruff cannot be installed"
        PATH="$PWD/target/ruff/bin:$PATH"
    fi
    git ls-files -z "${files[@]}" | xargs -0 ruff check \
        && git ls-files -z "${files[@]}" | xargs -0 ruff format --check
}

# For the whole workspace, like all steps below: a crate that is built alone has dependencies with
# fewer features, so that these and everything that depends on them would be compiled again.
step_tidy() { cargo test --workspace --test tidy; }

# Builds what most steps need, so that little is left to build for the adversary, which comes next.
step_build() { cargo test --workspace --no-run --lib --bins --tests; }

# Unit tests and integration tests in Rust; the binary that they run comes from the same build.
step_tests() {
    cargo test --workspace --no-fail-fast --lib --bins --tests -- --show-output
}

# Builds the binary that the tests of the command run.
build_forebay() { cargo build --workspace --bin forebay; }

# The examples in the documentation of public items.
step_examples() { cargo test --workspace --no-fail-fast --doc; }

# Compiles dependencies between the crates with clippy-driver, so that the results of the step
# `clippy` can be reused.
step_doc() {
    local driver
    driver="$(rustc --print sysroot)/bin/clippy-driver"
    if [ -x "$driver" ]; then
        export RUSTC_WORKSPACE_WRAPPER="$driver"
        export CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
    fi
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
}

# Compares answers with those of naive programs that share no code with Forebay.
step_oracles() {
    python3 -c 'import tomllib' 2>/dev/null || skip "Python 3.11 or newer is missing"
    build_forebay && FOREBAY="$built/debug/forebay" tests/oracles/run
}

# Scripts that drive the binary from outside; each may skip itself, with a reason.
step_integration() {
    [ -x tests/integration/run ] || skip "there are no scripts in tests/integration"
    build_forebay || return 1
    FOREBAY="$built/debug/forebay" tests/integration/run | sed -u 's/^SKIP  /skipped: /'
}

# Runs the tour of the README as a user would paste it.
step_readme() {
    build_forebay && FOREBAY="$built/debug/forebay" scripts/test-readme.sh
}

# Runs the adversary for longer than its own tests do: bounded by operations, not by time.
step_adversary() {
    [ -e adversary/src/main.rs ] || skip "the adversary runs only within its tests"
    local place="$built/adversary"
    mkdir -p "$place"
    # Runs a copy, because later steps build, too.
    cargo build --workspace --bin forebay-adversary || return 1
    cp "$built/debug/forebay-adversary" "$place/" || return 1
    "$place/forebay-adversary" ci && "$place/forebay-adversary" canaries
}

step_python() {
    [ -e scripts/test-python.sh ] || skip "there is no Python package"
    scripts/test-python.sh
}

# Shows the relevant part of the output of a step while it runs; the log has all of it.
filter() {
    grep --line-buffered --text -vE \
        '^processor time: |^ *(Compiling|Downloaded|Downloading|Checking|Documenting|Adding|Updating|Locking|Blocking|Doc-tests) |^test .*(\.\.\. ok|\.\.\. ignored)$|^running [0-9]+ tests?$|^$' \
        || true
}

# Shows only the skipped tests and the total of a passing `cargo test`.
digest() {
    local passed
    grep -hE '^skipped: ' "$1" | sort -u | sed 's/^/    /'
    passed="$(sed -nE 's/^test result: .* ([0-9]+) passed.*/\1/p' "$1" | awk '{n += $1} END {print n + 0}')"
    [ "$passed" = 0 ] || say "    $passed tests passed"
}

# Starts a step as a separate script, so that a hanging step can be ended along with everything it
# started.
begin() {
    local step=$1
    began[$step]=$SECONDS
    : >"$logs/$step.log"
    export -f say has missing skip compiled_once build_forebay "step_$step"
    export SKIP
    timeout -k 30 "$STEP_SECONDS_MAX" "${@:2}" bash -uo pipefail -c \
        "TIMEFORMAT='processor time: %0U %0S'; time step_$step" \
        </dev/null >"$logs/$step.log" 2>&1 &
    runner[$step]=$!
}

# Shows a step's output while it runs.
follow() {
    local step=$1
    tail --pid="${runner[$step]}" -n +1 -F "$logs/$step.log" 2>/dev/null | filter | case "$step" in
        build | tests | tidy | examples) grep --line-buffered -E '^(error|test .*FAILED|thread .* panicked|---- .* stdout|test result: F|failures:|assertion | +(left|right): |    Finished)' || true ;;
        readme) grep --line-buffered -E '^\++ [a-z]' || true ;;
        *) cat ;;
    esac
}

# Prints the processor time of a step and of everything it started; nothing if the step did not
# finish.
processor_seconds() {
    sed -nE 's/^processor time: //p' "$1" | tail -n 1 | awk '{print ", " $1 + $2 " s of CPU"}'
}

# Shows the failures in the log of a step, at most 60 lines.
failures() {
    local step=$1 log=$logs/$1.log
    say ""
    say "failures in $step:"
    case "$step" in
        integration) sed -nE '/^FAIL /,/^(ok|skipped:|[0-9]+ passed)/{/^(ok|skipped:|[0-9]+ passed)/!p}' "$log" ;;
        *) grep --text -E '^(error|FAILED|test .*FAILED|thread .* panicked|assertion | +(left|right): )' "$log" ;;
    esac | grep . | head -n 60 || tail -n 20 "$log"
}

# Waits for a step and reports its result.
finish() {
    local step=$1 log=$logs/$1.log status took line
    wait "${runner[$step]}"
    status=$?
    unset "runner[$step]"
    took="$((SECONDS - began[$step])) s$(processor_seconds "$log")"
    case "$status" in
        0)
            passed=$((passed + 1))
            digest "$log"
            line="passed   $step ($took)"
            ;;
        "$SKIP")
            skipped=$((skipped + 1))
            line="skipped  $step: $(sed -nE 's/^skipped: //p' "$log" | tail -n 1)"
            ;;
        *)
            failed=$((failed + 1))
            case "$step" in
                build | tests | tidy | examples | readme)
                    say "--- the end of $log"
                    tail -n 60 "$log"
                    ;;
            esac
            [ "$status" = 124 ] && say "timed out after $STEP_SECONDS_MAX s"
            line="FAILED   $step ($took), see $log"
            unsuccessful="$step $unsuccessful"
            ;;
    esac
    [ "$status" = "$SKIP" ] || within="$within$(grep -hE '^skipped: ' "$log")"$'\n'
    say "=== $line"
    summary="$summary$line"$'\n'
}

list="${*:-$STEPS}"
passed=0 failed=0 skipped=0 summary="" within="" beside="" unsuccessful=""
declare -A began runner
# When this script ends, its steps end, too.
trap '[ ${#runner[@]} = 0 ] || kill "${runner[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT TERM
started=$SECONDS
for step in $list; do
    if ! declare -F "step_$step" >/dev/null; then
        say "there is no step '$step'; choose from: $STEPS"
        exit 2
    fi
    if [ -n "${BESIDE[$step]+beside}" ]; then
        read -ra how <<<"${BESIDE[$step]}"
        begin "$step" "${how[@]}"
        beside="$step $beside"
        continue
    fi
    say ""
    say "=== $step"
    begin "$step"
    follow "$step"
    finish "$step"
done
for step in $beside; do
    say ""
    say "=== $step"
    follow "$step"
    finish "$step"
done

say ""
say "summary, $((SECONDS - started)) s in total:"
printf '%s' "$summary" | sed 's/^/  /'
within="$(printf '%s' "$within" | sort -u)"
if [ -n "${within//[[:space:]]/}" ]; then
    say "within the steps:"
    printf '%s\n' "$within" | sed 's/^/  /'
fi
for step in $unsuccessful; do
    failures "$step"
done
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
