//! Every error says facts. The flags and commands of a program are that program's to name: an embedder has others.

use forebay_block::Volume;
use std::collections::BTreeSet;

use forebay_flash::{Older, SuperblockGeneration};

use super::*;
use crate::backing_stores::StoreFailure;
use crate::faults::{Fault, FlashGivenUp, LastingFault, OrderNews, UnreadableBlocks};
use crate::notice::EngineNotice;

fn path() -> PathBuf {
    "/dev/x".into()
}

fn text() -> String {
    "x".to_owned()
}

fn io() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn mismatch() -> TierMismatch {
    TierMismatch::Count { bound: 1, configured: 2 }
}

fn destage(left: DirtyLeft) -> EngineError {
    let failure =
        StoreFailure::Session("the server of nbd://host has closed the session".to_owned());
    let stores = vec![FailingStore { volume: text(), failure }];
    EngineError::Destage {
        what: "the stop",
        why: DestageFailure::Other(IoError::Invalid.into()),
        stores,
        left,
    }
}

/// At least one error of each variant.
fn errors() -> Vec<EngineError> {
    use EngineError as E;
    let (volume, path, what) = (text, path, text);
    let changed = || E::Changed { volume: volume(), path: path(), flash: path(), blocks: 3 };
    let mut errors = vec![
        E::Setup(SetupError::DramTooLarge),
        E::Volumes { configured: 0, most: 9 },
        E::PageSize { path: path(), least: 4096 },
        E::NoFlashToAcknowledge,
        E::Quiesced,
        E::StartEnded,
        E::StartCut { formatted: true },
        E::Open(OpenError::Io { action: "open", path: path(), source: io() }),
        E::Absent { what: what(), path: path() },
        E::Nbd(NbdError::Socket { address: text(), action: "connect", source: io() }),
        E::NoHeader { volume: volume(), path: path() },
        E::DirtyReadOnly { volume: volume(), path: path() },
        E::HeaderWithoutFlush { volume: volume(), path: path() },
        E::Io { action: "read", path: path(), source: io() },
        E::NoStore { path: path(), error: HeaderError::Foreign },
        E::Layout { volume: volume(), path: path(), found: text(), wanted: text() },
        E::BlockSize { path: path(), found: 4096, wanted: 8192 },
        E::NoTail { volume: volume(), path: path() },
        changed(),
        E::NoHeaderToRelease { path: path() },
        E::TwoHeaders { path: path() },
        E::DirtyRelease { path: path() },
        E::Unsealed(UnsealedReason::CutShort),
        E::AdoptedLayout { path: path(), layout: text(), problems: Vec::new() },
        E::Order { what: "the quiesce", error: Box::new(changed()) },
        E::FlashNote(IoError::Invalid),
        E::StillQuiesced(Box::new(changed())),
        E::QuiesceEnded,
        E::NotExtended(Box::new(changed())),
        E::NoAnswer { volumes: vec![volume()], seconds: 30 },
        E::HeldRefused(Box::new(changed())),
        E::SeveralStores { error: Box::new(changed()), others: vec![volume()] },
        E::VolumesHeld(vec![HeldVolume { volume: volume(), why: text() }]),
        E::Shrunk { volume: volume(), size: 1, offset: 2, path: path() },
        E::Enlarged { volume: volume(), former: 1, path: path() },
        E::TooSmall { volume: volume(), path: path(), size: 1, needed: 2 },
        E::FlashTooSmall { path: path(), size: 1, needed: 2 },
        E::FlashCut { path: path(), size: 1, needed: 2 },
        E::Missing { error: Box::new(changed()), missing: vec![path()] },
        E::DirtyElsewhere { volume: volume(), path: path() },
        E::Twins { one: volume(), other: volume() },
        E::Switching,
        E::FlashFailed,
        E::Stopping,
        E::DramSize { bytes: 1, least: 2, most: 3 },
        E::Bound { path: path(), mismatch: mismatch() },
        E::Foreign { path: path(), mismatch: mismatch() },
        E::Epoch { volume: volume(), error: EpochError::StoreOlder { flash: 2, store: 1 } },
        E::Epoch { volume: volume(), error: EpochError::FlashOlder { flash: 1, store: 2 } },
        E::OlderStore { volume: volume(), path: path(), flash: path() },
        E::OlderFlash { volume: volume(), path: path(), flash: path() },
        E::DirtyFlash { path: path(), blocks: 3 },
        E::Uncounted { path: path(), why: UncountedReason::Damaged },
        E::NotFlash { path: path() },
        E::TierAsStore { volume: volume(), path: path() },
        E::StoreAsTier { path: path(), layout: None, dirty: true },
        E::NoFlashTier { path: path(), holds: "is empty" },
        E::Geometry { path: path(), error: GeometryError::DeviceTooSmall { size: 1, needed: 2 } },
        E::Arena(ArenaError::TooLarge { count: 1, frame_bytes: 4096 }),
        E::System("start a thread", io()),
        E::Backend(UnknownBackend(text())),
        destage(DirtyLeft::OnFlash(1)),
    ];
    for dirty in [false, true] {
        let (volume, path) = (volume(), path());
        let (found, wanted) = (text(), text());
        errors.push(E::OtherLayout { volume, path, found, wanted, dirty });
        let (layout, path) = (Some(text()), self::path());
        errors.push(E::StoreAsTier { path, layout, dirty });
        let (volume, path) = (text(), self::path());
        errors.push(E::Grown { volume, path, at: 1, was: 2, is: 3, dirty });
    }
    for error in [
        HeaderError::Foreign,
        HeaderError::Missing,
        HeaderError::Damaged,
        HeaderError::Inside(1),
        HeaderError::Newer(9),
    ] {
        errors.push(E::Header { volume: volume(), path: path(), error });
    }
    errors.extend(log_errors().into_iter().map(|error| E::Flash { path: path(), error }));
    errors
}

fn log_errors() -> Vec<LogError> {
    vec![
        LogError::NotALog,
        LogError::SuperblockDamaged,
        LogError::SuperblockStale {
            found: SuperblockGeneration(1),
            known: SuperblockGeneration(2),
        },
        LogError::NewerFormat { found: 9, supported: 1 },
        LogError::Geometry { what: "x", stored: 1, expected: 2 },
        LogError::BeyondVolume { volume: Volume(1), offset: 2, size: 1 },
        LogError::Enlarged { volume: Volume(1), former: 1 },
        LogError::Changed { volume: Volume(1), blocks: 1 },
        LogError::Older { volume: Volume(1), which: Older::Flash },
        LogError::NoPlace { blocks: 1 },
        LogError::Layout(9),
        LogError::OtherLayout { stored: 0, expected: 1 },
        LogError::Damaged(Box::default()),
        LogError::Io(IoError::Invalid),
    ]
}

/// The name of the variant of a value, or of a line that declares one.
fn name(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// The variants of `kind` that `source` declares.
fn declared(source: &str, kind: &str) -> BTreeSet<String> {
    let body = source.split_once(&format!("pub enum {kind} {{\n")).unwrap().1;
    let lines = body.split_once("\n}\n").unwrap().0.lines();
    let is_variant = |line: &&str| {
        line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(|c: char| c.is_uppercase()))
    };
    lines.filter(is_variant).map(name).collect()
}

fn assert_has_no_flags(text: &str) {
    for word in ["--", "forebay ctl", "forebay flash", "forebay serve"] {
        assert!(!text.contains(word), "`{word}` is of the command line: {text}");
    }
}

#[test]
fn no_error_names_a_flag_or_a_command() {
    let errors = errors();
    let shown: BTreeSet<_> = errors.iter().map(|error| name(&format!("{error:?}"))).collect();
    assert_eq!(shown, declared(include_str!("../error.rs"), "EngineError"));
    let of_log: BTreeSet<_> = log_errors().iter().map(|e| name(&format!("{e:?}"))).collect();
    assert_eq!(of_log, declared(include_str!("../../../flash/src/types.rs"), "LogError"));
    errors.iter().for_each(|error| assert_has_no_flags(&error.to_string()));
}

#[test]
fn no_notice_and_no_fault_names_a_flag_or_a_command() {
    let (volume, why) = (text, || StoreFailure::Io(IoError::Invalid));
    let volumes = || vec![text()];
    let unreadable = UnreadableBlocks { shown: vec![(text(), 1), (text(), 2)], more: 3 };
    let size = EngineNotice::Formatted { path: path(), key: "size", formatted: 1, configured: 2 };
    assert_has_no_flags(&size.to_string());
    for fault in [
        Fault::Failing { volume: volume(), operations: 2, why: why() },
        Fault::Unstamped { volume: volume(), why: text() },
        Fault::Suspended { volume: volume(), why: IoError::Invalid },
        Fault::Disconnected { volume: volume(), why: text() },
        Fault::Resumed { volume: volume() },
        Fault::Jammed { failing: vec![volume()] },
        Fault::Unjammed,
        Fault::News(OrderNews::StoresChanged { volumes: volumes() }),
        Fault::News(OrderNews::StoresSilent { volumes: volumes() }),
        Fault::News(OrderNews::StoresUnread { volumes: volumes() }),
        Fault::Lasting(LastingFault::FlashGivenUp(FlashGivenUp { dependent: Vec::new() })),
        Fault::Lasting(LastingFault::FlashGivenUp(FlashGivenUp { dependent: volumes() })),
        Fault::Lasting(LastingFault::Unreadable(unreadable)),
    ] {
        assert_has_no_flags(&fault.to_string());
    }
}

#[test]
fn a_failed_destage_says_why_which_stores_fail_and_where_the_data_is() {
    let said = |left| destage(left).to_string();
    let begins = format!(
        "the stop failed: {}; volume x: the server of nbd://host has closed the session; ",
        IoError::Invalid
    );
    for (left, ends) in [
        (DirtyLeft::OnFlash(1), "1 dirty block stays on the flash tier"),
        (DirtyLeft::OnFlashOrInMemory(2), "2 dirty blocks stay on the flash tier or in memory"),
        (DirtyLeft::InMemory(2), "2 dirty blocks stay in memory"),
        (
            DirtyLeft::NewestLost { on_flash: 2, lost: 1 },
            "2 dirty blocks stay on the flash tier; the newest data of 1 block was only in memory \
             and is lost",
        ),
        (
            DirtyLeft::UnacknowledgedLost { on_flash: 0, lost: 3 },
            "0 dirty blocks stay on the flash tier; unacknowledged writes to 3 blocks are lost",
        ),
        (DirtyLeft::AllLost(2), "the newest data of 2 dirty blocks was only in memory and is lost"),
    ] {
        assert_eq!(said(left), format!("{begins}{ends}"));
    }
}
