# Sourced by the other scripts (bash).

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# The directory of rustup for cargo, and those of Debian for mkfs and similar programs.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH:/usr/sbin:/sbin"

say() { printf '%s\n' "$*"; }

has() { command -v "$1" >/dev/null 2>&1; }

# Prints the first of the given programs that this machine lacks, if any.
missing() {
    local program
    for program in "$@"; do
        if ! has "$program"; then
            printf '%s' "$program"
            return
        fi
    done
}
