# A mail server: the Maildirs of many users, see mail.py.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

MAIL_USERS=${MAIL_USERS:-400}
MAIL_MESSAGES=${MAIL_MESSAGES:-16000}
MAIL_EVENTS=${MAIL_EVENTS:-40000}
MAIL_MEMORY=${MAIL_MEMORY:-128}

mail_about() {
    say "a mail server, Maildirs of $MAIL_USERS users with $MAIL_MESSAGES messages, then $MAIL_EVENTS" \
        "deliveries and sessions, $MAIL_MEMORY MiB of memory"
}

mail_packages() { say "python3:python3"; }

mail_configure() { volume mail 6GiB; }

mail_prepare() {
    python3 scripts/traces/mail.py fill "$scratch/mail/store" "$MAIL_USERS" "$MAIL_MESSAGES" "$SEED"
}

mail_run() {
    limit_memory $((MAIL_MEMORY << 20))
    limited python3 scripts/traces/mail.py run "$scratch/mail/store" "$MAIL_USERS" "$MAIL_EVENTS" "$SEED"
    end_limited
}
