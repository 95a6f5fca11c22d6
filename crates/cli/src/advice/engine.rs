//! What to do about an error of the engine, in terms of the command line. The engine reports what
//! happened; it knows neither flags nor commands.

use forebay_config::Size;
use forebay_device::file::OpenError;
use forebay_device::nbd::NbdError;
use forebay_engine::{DirtyLeft, EngineError, EngineNotice, Fault, HeaderError, TierMismatch};
use forebay_flash::LogError;

/// The names that the flags of `forebay serve` have in the command that runs the engine.
pub struct Flags {
    /// The flag that formats the devices.
    format: &'static str,
    /// The flag or command that drops the cached blocks of changed stores, after it destages their
    /// dirty blocks.
    drop_clean: &'static str,
}

impl Flags {
    pub const SERVE: Flags = Flags { format: "--format", drop_clean: "--drop-clean" };
    /// In `forebay replay`, `--format` is the format of the trace.
    pub const REPLAY: Flags =
        Flags { format: "--format-devices", drop_clean: "`forebay serve --drop-clean`" };
}

/// The message for users of `forebay serve` and `forebay ctl`: the error, followed by advice.
pub fn explain(error: &EngineError) -> String {
    explain_for(error, &Flags::SERVE)
}

/// Like [`explain`], for a command that has these flags.
pub fn explain_for(error: &EngineError, flags: &Flags) -> String {
    match advice(error, flags) {
        Some(advice) => format!("{error}. {advice}"),
        None => error.to_string(),
    }
}

/// The message for a notice, with advice.
pub fn explain_notice(notice: &EngineNotice, flags: &Flags) -> String {
    match notice {
        EngineNotice::Formatted { .. } => format!("{notice} with {}", flags.format),
        EngineNotice::NewTier { .. } => format!(
            "{notice}. If you meant to use that tier, correct `path` in [flash], and format that \
             tier with {}",
            flags.format
        ),
        _ => notice.to_string(),
    }
}

/// The message for a fault, with advice.
pub fn explain_fault(fault: &Fault) -> String {
    match fault {
        Fault::Suspended { .. } => format!("{fault}, and when you run `forebay ctl resume`"),
        _ => fault.to_string(),
    }
}

/// What to do about an error, unless its own message says that. Lints keep the list complete; the
/// compiler cannot, because the enum is non-exhaustive.
#[deny(clippy::wildcard_enum_match_arm, clippy::match_wildcard_for_single_variants)]
fn advice(error: &EngineError, flags: &Flags) -> Option<String> {
    use EngineError as E;
    let Flags { format, drop_clean } = flags;
    Some(match error {
        E::Header { error, .. } => return of_header(error, flags),
        E::BlockSize { found, .. } => format!(
            "Set block_size in [cache] back to {0}; or, to change the block size, serve with {0}, \
             stop with --destage and start with {format}",
            Size((*found).into())
        ),
        E::OtherLayout { found, dirty, .. } => match dirty {
            false => {
                format!("Set layout = \"{found}\", or start with {format} to invalidate the header")
            }
            true => format!(
                "Set layout = \"{found}\", or discard the newer data and the header with {format} \
                 --discard-dirty-data"
            ),
        },
        E::Grown { dirty, .. } => match dirty {
            false => format!(
                "To use the new size, start once with {format}: it writes a new header at the end \
                 and does not change the data"
            ),
            true => format!(
                "Restore the old size, start the server with {drop_clean} (required because the \
                 file's modification time has changed; this writes the dirty blocks to the store) \
                 and stop it with --destage before you enlarge the store; or discard the newer \
                 data with {format} --discard-dirty-data"
            ),
        },
        E::NoTail { .. } => format!(
            "If Forebay has never used this store, start once with {format}: it writes the header \
             and does not change the data before the last MiB. If Forebay has used it, restore \
             the old size"
        ),
        E::Changed { .. } => format!(
            "If only the file's modification time has changed, not the contents (after `touch`, \
             `truncate` or a copy), or if the store's current contents may be overwritten, start \
             with {drop_clean}: this writes the dirty blocks to the store and drops the clean \
             ones. Otherwise, first restore the previous contents, or start with {format} \
             --discard-dirty-data to discard the dirty blocks"
        ),
        E::NoHeaderToRelease { .. } => "With layout = \"none\", use --config too: Forebay then \
                                        records the release on the flash tier"
            .to_owned(),
        E::TwoHeaders { .. } => "Use `forebay backing release` with --config: the configured \
                                 layout determines which header belongs to the store"
            .to_owned(),
        E::DirtyRelease { .. } => "Destage that data first: run `forebay flash recover`, or serve \
                                   the store and stop with --destage"
            .to_owned(),
        E::Quiesced => "First end the quiesce with `forebay ctl quiesce --resume`".to_owned(),
        E::QuiesceEnded => "To pause clients, run `forebay ctl quiesce` again".to_owned(),
        E::NotExtended(error) => {
            let first = advice(error, flags).map_or_else(String::new, |first| first + ". ");
            format!("{first}To let clients continue, run `forebay ctl quiesce --resume`")
        }
        E::NoAnswer { .. } => {
            "Try again once `forebay ctl status` shows that the stores are working".to_owned()
        }
        E::StillQuiesced(error) => {
            let first = advice(error, flags).map_or_else(String::new, |first| first + ". ");
            format!("{first}Try `forebay ctl resume` again")
        }
        E::VolumesHeld(_) => {
            "Forebay retries every second, and when you run `forebay ctl resume`. If a store's NBD \
             server has closed the connection, restart `forebay serve` once that server is back"
                .to_owned()
        }
        E::Shrunk { .. } => {
            "Restore the volume's previous size, start the server and stop it with --destage, then \
             shrink the store"
                .to_owned()
        }
        E::Enlarged { .. } => {
            "Restore the volume's previous size, start the server and stop it with --destage, then \
             enlarge the volume"
                .to_owned()
        }
        E::DirtyElsewhere { .. } => {
            "Configure that tier again, or discard the data with --discard-dirty-data".to_owned()
        }
        E::Twins { other, .. } => format!(
            "If you want to use both, start once with {format}: it gives {other} a new identity \
             and formats the flash tier (refused while the tier holds dirty data)"
        ),
        E::Bound { mismatch: TierMismatch::UsedWithAnother { .. }, .. } => format!(
            "Use the tier with which the volume was last served; or format this one with {format} \
             (refused while it holds dirty data)"
        ),
        E::Bound { .. } => format!(
            "Serve it with its own stores, or format it with {format} (refused while it holds \
             dirty data)"
        ),
        E::Foreign { .. } => "Serve it with its own stores and stop with --destage, or discard \
                              the data with --discard-dirty-data"
            .to_owned(),
        E::Epoch { .. } => format!(
            "Restore a store and a flash tier that belong together, or format the flash tier with \
             {format} (data that only the tier holds is lost; add --discard-dirty-data if it holds \
             dirty data)"
        ),
        E::OlderStore { .. } => format!(
            "Restore the newer store; or use this copy: {drop_clean} writes the dirty blocks on \
             flash over it, and {format} --discard-dirty-data discards those blocks"
        ),
        E::OlderFlash { .. } => format!(
            "Restore the newer tier; or, with {format} --discard-dirty-data, serve the stores as \
             they are, without the data that only the flash tier held"
        ),
        E::DirtyFlash { .. } => format!(
            "Start without {format} (if a store has changed since, with {drop_clean}), and stop \
             with --destage; or discard the data with --discard-dirty-data"
        ),
        E::Uncounted { .. } => "Discard the data with --discard-dirty-data".to_owned(),
        E::NotFlash { .. } => {
            format!("Use another device, or start with {format} to overwrite it")
        }
        E::TierAsStore { .. } => format!(
            "Check the configuration: `path` in [flash] and `backing` may be mixed up. To \
             overwrite the flash tier and any dirty data on it, start with {format} \
             --discard-dirty-data"
        ),
        E::StoreAsTier { dirty, .. } => format!(
            "Check the configuration: `path` in [flash] and `backing` may be mixed up. To \
             overwrite the store, start with {format}{}",
            if *dirty { " --discard-dirty-data" } else { "" }
        ),
        E::Flash { error, .. } => return of_log(error, flags),
        E::Missing { error, .. }
        | E::Order { error, .. }
        | E::SeveralStores { error, .. }
        | E::HeldRefused(error) => return advice(error, flags),
        E::Open(OpenError::Kind { .. }) => "Use a regular file or a block device: `path` in \
                                            [flash], `backing` in [[volume]]"
            .to_owned(),
        E::Nbd(NbdError::Socket { action: "connect", .. }) => {
            "Start that NBD server, or correct `backing`".to_owned()
        }
        E::TooSmall { path, needed, .. } => format!(
            "Lower the `size` of the volume, or enlarge the store (a file: `truncate -s {needed} \
             {}`). The size of the store includes 1 MiB for the header, unless layout = \"none\"",
            path.display()
        ),
        E::FlashTooSmall { path, needed, .. } => format!(
            "Lower flash.size, or enlarge the tier (a file: `truncate -s {needed} {}`)",
            path.display()
        ),
        E::Destage { stores, .. } if stores.is_empty() => return None,
        E::Destage { left, .. } => return of_destage(left),
        // These messages already say what to change in the configuration.
        E::Setup(_)
        | E::Volumes { .. }
        | E::PageSize { .. }
        | E::AdoptedLayout { .. }
        | E::NoFlashToAcknowledge
        | E::Absent { .. }
        | E::NoHeader { .. }
        | E::DirtyReadOnly { .. }
        | E::HeaderWithoutFlush { .. }
        | E::Layout { .. }
        | E::DramSize { .. } => return None,
        // Nothing can be done, or it depends on the cause.
        E::StartEnded
        | E::StartCut { .. }
        | E::Open(_)
        | E::Nbd(_)
        | E::Io { .. }
        | E::NoStore { .. }
        | E::Unsealed(_)
        | E::FlashNote(_)
        | E::FlashCut { .. }
        | E::Switching
        | E::FlashFailed
        | E::Stopping
        | E::NoFlashTier { .. }
        | E::Geometry { .. }
        | E::Arena(_)
        | E::System(..)
        | E::Backend(_) => return None,
        _ => return None,
    })
}

/// What to do about failing stores, which depends on whether the server still runs.
fn of_destage(left: &DirtyLeft) -> Option<String> {
    Some(match left {
        DirtyLeft::OnFlash(_)
        | DirtyLeft::NewestLost { .. }
        | DirtyLeft::UnacknowledgedLost { .. } => {
            "Repair the store (for example, free space on it, \
                                                   or start its NBD server), then start Forebay \
                                                   again, or run `forebay flash recover`"
                .to_owned()
        }
        DirtyLeft::OnFlashOrInMemory(_) => "Repair the store and try again. Forebay does not \
                                            reconnect to an NBD server: start that server, then \
                                            restart Forebay"
            .to_owned(),
        DirtyLeft::InMemory(_) => "Repair the store and try again".to_owned(),
        DirtyLeft::AllLost(_) => return None,
    })
}

#[deny(clippy::wildcard_enum_match_arm, clippy::match_wildcard_for_single_variants)]
fn of_header(error: &HeaderError, Flags { format, .. }: &Flags) -> Option<String> {
    Some(match error {
        HeaderError::Foreign | HeaderError::Missing => format!(
            "To keep the data, use layout = \"none\" (no header) or \"tail\" (the last MiB must be \
             free); to overwrite it, start with {format}"
        ),
        HeaderError::Damaged => format!(
            "If Forebay has never used this store, use layout = \"none\" or \"tail\". If it has, \
             and the flash tier holds no newer data, {format} writes a new header and keeps the \
             data"
        ),
        HeaderError::Impossible(_) => format!(
            "Use the version of forebay that wrote it; or, if the flash tier holds no newer data \
             or you no longer need that data, {format} --discard-dirty-data writes a new header \
             and keeps the store's data"
        ),
        HeaderError::Inside(_) => "Restore its previous size".to_owned(),
        HeaderError::Newer(_) => "Use a newer version of Forebay".to_owned(),
        _ => return None,
    })
}

#[deny(clippy::wildcard_enum_match_arm, clippy::match_wildcard_for_single_variants)]
fn of_log(error: &LogError, Flags { format, .. }: &Flags) -> Option<String> {
    Some(match error {
        LogError::NewerFormat { .. } => "Use a newer version of Forebay".to_owned(),
        LogError::NoPlace { .. } => "First start with the memory size and number of shards of the \
                                     previous run, and destage"
            .to_owned(),
        LogError::OtherLayout { .. } => "Restore the previous `layout` in [flash], or destage the \
                                         dirty blocks (`forebay flash recover`) and format the \
                                         tier again"
            .to_owned(),
        LogError::Damaged(_) => format!(
            "Start with {format} to discard its data (if any of the data is dirty, {format} says \
             so and also requires --discard-dirty-data)"
        ),
        LogError::NotALog
        | LogError::SuperblockDamaged
        | LogError::SuperblockStale { .. }
        | LogError::Geometry { .. }
        | LogError::BeyondVolume { .. }
        | LogError::Enlarged { .. }
        | LogError::Changed { .. }
        | LogError::Older { .. }
        | LogError::Layout(_)
        | LogError::Io(_) => return None,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use forebay_effect::IoError;
    use forebay_engine::{EpochError, HeldVolume, UncountedReason};

    use super::*;

    fn path() -> PathBuf {
        "/dev/x".into()
    }

    fn text() -> String {
        "x".to_owned()
    }

    fn header(error: HeaderError) -> EngineError {
        EngineError::Header { volume: text(), path: path(), error }
    }

    fn log(error: LogError) -> EngineError {
        EngineError::Flash { path: path(), error }
    }

    fn mismatch() -> TierMismatch {
        TierMismatch::NotBound { volume: text() }
    }

    fn bound() -> EngineError {
        EngineError::Bound { path: path(), mismatch: mismatch() }
    }

    /// Every error with advice, and how the advice ends.
    fn advised() -> Vec<(EngineError, &'static str)> {
        use EngineError as E;
        let (volume, path) = (text, path);
        let other = |dirty| E::OtherLayout {
            volume: text(),
            path: path(),
            found: "tail".to_owned(),
            wanted: text(),
            dirty,
        };
        let grown = |dirty| E::Grown { volume: text(), path: path(), at: 1, was: 2, is: 3, dirty };
        let epoch = EpochError::StoreOlder { flash: 2, store: 1 };
        let damaged = LogError::Damaged(Box::default());
        vec![
            (header(HeaderError::Foreign), "to overwrite it, start with --format"),
            (header(HeaderError::Missing), "to overwrite it, start with --format"),
            (header(HeaderError::Damaged), "--format writes a new header and keeps the data"),
            (
                header(HeaderError::Impossible("layout")),
                "--format --discard-dirty-data writes a new header and keeps the store's data",
            ),
            (header(HeaderError::Inside(1)), "Restore its previous size"),
            (header(HeaderError::Newer(9)), "Use a newer version of Forebay"),
            (
                E::BlockSize { path: path(), found: 4096, wanted: 8192 },
                "serve with 4 KiB, stop with --destage and start with --format",
            ),
            (
                other(false),
                "Set layout = \"tail\", or start with --format to invalidate the header",
            ),
            (other(true), "the newer data and the header with --format --discard-dirty-data"),
            (
                grown(false),
                "start once with --format: it writes a new header at the end and does \
                            not change the data",
            ),
            (
                grown(true),
                "Restore the old size, start the server with --drop-clean (required because the \
                 file's modification time has changed; this writes the dirty blocks to the store) \
                 and stop it with --destage before you enlarge the store; or discard the newer \
                 data with --format --discard-dirty-data",
            ),
            (E::NoTail { volume: volume(), path: path() }, "restore the old size"),
            (
                E::Changed { volume: volume(), path: path(), flash: path(), blocks: 3 },
                "start with --drop-clean: this writes the dirty blocks to the store and drops the \
                 clean ones. Otherwise, first restore the previous contents, or start with --format \
                 --discard-dirty-data to discard the dirty blocks",
            ),
            (E::NoHeaderToRelease { path: path() }, "the release on the flash tier"),
            (
                E::TwoHeaders { path: path() },
                "the configured layout determines which header belongs to the store",
            ),
            (E::DirtyRelease { path: path() }, "or serve the store and stop with --destage"),
            (E::Quiesced, "First end the quiesce with `forebay ctl quiesce --resume`"),
            (E::QuiesceEnded, "run `forebay ctl quiesce` again"),
            (
                E::NoAnswer { volumes: vec![volume()], seconds: 30 },
                "once `forebay ctl status` shows that the stores are working",
            ),
            (
                E::NotExtended(Box::new(E::FlashFailed)),
                "To let clients continue, run `forebay ctl quiesce --resume`",
            ),
            (
                E::StillQuiesced(Box::new(E::FlashFailed)),
                "held back. Try `forebay ctl resume` again",
            ),
            (
                E::VolumesHeld(vec![HeldVolume { volume: volume(), why: "no space".to_owned() }]),
                "restart `forebay serve` once that server is back",
            ),
            (
                E::Shrunk { volume: volume(), size: 1, offset: 2, path: path() },
                "stop it with --destage, then shrink the store",
            ),
            (
                E::Enlarged { volume: volume(), former: 1, path: path() },
                "stop it with --destage, then enlarge the volume",
            ),
            (
                E::DirtyElsewhere { volume: volume(), path: path() },
                "or discard the data with --discard-dirty-data",
            ),
            (
                E::Twins { one: volume(), other: volume() },
                "start once with --format: it gives x a new identity and formats the flash tier \
                 (refused while the tier holds dirty data)",
            ),
            (bound(), "or format it with --format (refused while it holds dirty data)"),
            (
                E::Foreign { path: path(), mismatch: mismatch() },
                "stop with --destage, or discard the data with --discard-dirty-data",
            ),
            (
                E::Epoch { volume: volume(), error: epoch },
                "is lost; add --discard-dirty-data if it holds dirty data)",
            ),
            (
                E::OlderStore { volume: volume(), path: path(), flash: path() },
                "--drop-clean writes the dirty blocks on flash over it, and --format \
                 --discard-dirty-data discards those blocks",
            ),
            (
                E::OlderFlash { volume: volume(), path: path(), flash: path() },
                "with --format --discard-dirty-data, serve the stores as they are, without the \
                 data that only the flash tier held",
            ),
            (
                E::DirtyFlash { path: path(), blocks: 3 },
                "Start without --format (if a store has changed since, with --drop-clean), and stop \
                 with --destage; or discard the data with --discard-dirty-data",
            ),
            (
                E::Bound {
                    path: path(),
                    mismatch: TierMismatch::UsedWithAnother { volume: volume() },
                },
                "Use the tier with which the volume was last served; or format this one with \
                 --format (refused while it holds dirty data)",
            ),
            (
                E::Uncounted { path: path(), why: UncountedReason::Damaged },
                "Discard the data with --discard-dirty-data",
            ),
            (E::NotFlash { path: path() }, "or start with --format to overwrite it"),
            (E::Open(OpenError::Kind { path: path() }), "`backing` in [[volume]]"),
            (
                E::TooSmall { volume: volume(), path: path(), size: 1, needed: 1 << 21 },
                "needs 2 MiB; nothing was written. Lower the `size` of the volume, or enlarge the \
                 store (a file: `truncate -s 2097152 /dev/x`). The size of the store includes 1 MiB \
                 for the header, unless layout = \"none\"",
            ),
            (
                E::FlashTooSmall { path: path(), size: 1, needed: 1 << 21 },
                "enlarge the tier (a file: `truncate -s 2097152 /dev/x`)",
            ),
            (
                E::TierAsStore { volume: volume(), path: path() },
                "any dirty data on it, start with --format --discard-dirty-data",
            ),
            (
                E::StoreAsTier { path: path(), layout: Some(text()), dirty: false },
                "may be mixed up. To overwrite the store, start with --format",
            ),
            (
                E::StoreAsTier { path: path(), layout: None, dirty: true },
                "To overwrite the store, start with --format --discard-dirty-data",
            ),
            (
                log(LogError::NewerFormat { found: 9, supported: 1 }),
                "Use a newer version of Forebay",
            ),
            (log(LogError::NoPlace { blocks: 1 }), "of the previous run, and destage"),
            (
                log(LogError::OtherLayout { stored: 0, expected: 1 }),
                "(`forebay flash recover`) and format the tier again",
            ),
            (log(damaged), "--format says so and also requires --discard-dirty-data)"),
            (E::HeldRefused(Box::new(bound())), "(refused while it holds dirty data)"),
            (
                E::Order { what: "the quiesce", error: Box::new(bound()) },
                "(refused while it holds dirty data)",
            ),
            (
                E::Missing { error: Box::new(bound()), missing: vec![path()] },
                "do not exist: /dev/x. Serve it with its own stores, or format it with --format \
                 (refused while it holds dirty data)",
            ),
        ]
    }

    #[test]
    fn an_error_ends_in_the_advice_of_the_command_that_ran_the_engine() {
        for (error, end) in advised() {
            let fact = error.to_string();
            let said = explain(&error);
            assert!(said.starts_with(&format!("{fact}. ")) && said.ends_with(end), "{said}");
            let replayed = explain_for(&error, &Flags::REPLAY);
            assert_eq!(
                replayed,
                said.replace("--format", "--format-devices")
                    .replace("--drop-clean", "`forebay serve --drop-clean`")
            );
        }
    }

    #[test]
    fn an_error_without_advice_is_said_as_it_is() {
        for error in [EngineError::Stopping, EngineError::NoFlashToAcknowledge] {
            assert_eq!(explain(&error), error.to_string());
        }
    }

    #[test]
    fn an_error_of_the_engine_has_its_advice_through_any_command() {
        use crate::error::CliError;
        let said = format!("forebay: {}", explain(&bound()));
        assert_eq!(CliError::from(bound()).to_string(), said);
        assert_eq!(CliError::from(forebay_serve::ServeError::Engine(bound())).to_string(), said);
        assert_eq!(CliError::from(forebay_replay::ReplayError::Engine(bound())).to_string(), said);
    }

    #[test]
    fn a_notice_and_a_fault_end_in_what_to_do() {
        let size =
            EngineNotice::Formatted { path: path(), key: "size", formatted: 1, configured: 2 };
        let said = explain_notice(&size, &Flags::SERVE);
        assert!(said.ends_with("when you format the tier again with --format"), "{said}");
        let former = forebay_flash::TierId::new([7; 16]);
        let new = EngineNotice::NewTier { path: path(), former, volumes: vec![text()] };
        let said = explain_notice(&new, &Flags::SERVE);
        assert!(said.ends_with("`path` in [flash], and format that tier with --format"), "{said}");
        let said = explain_fault(&Fault::Suspended { volume: text(), why: IoError::Invalid });
        assert!(said.ends_with("every 5 seconds, and when you run `forebay ctl resume`"), "{said}");
    }
}
