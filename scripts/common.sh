# Read by the other scripts; bash.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Where rustup puts cargo, and where Debian puts mkfs and its like.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH:/usr/sbin:/sbin"

say() { printf '%s\n' "$*"; }

has() { command -v "$1" >/dev/null 2>&1; }

# The first of the programs given that this machine lacks, if one is.
missing() {
    local program
    for program in "$@"; do
        if ! has "$program"; then
            printf '%s' "$program"
            return
        fi
    done
}
