//! The targets. Each returns whether its parser accepted the bytes.

use forebay_config::{Address, Config, FileMode, Size, TimeSpan};
use forebay_engine::backing_header::{BackingHeader, COPY_BYTES};
use forebay_engine::tape::replay;
use forebay_flash::format::superblock::Superblock;
use forebay_plan::Catalogue;
use forebay_trace::{Batch, FORMATS, OpenOptions, Spec, open_bytes};

use crate::seeds;

/// The two copies of a backing store's header, one after the other.
pub fn backing_header(bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len().min(COPY_BYTES));
    let blank = BackingHeader::is_blank(bytes);
    let Ok(Some(header)) = BackingHeader::newest([first, second], blank) else { return false };
    let encoded = header.encode();
    let none = [0; COPY_BYTES];
    let copies: [&[u8]; 2] =
        if header.offset_in_area() == 0 { [&encoded, &none] } else { [&none, &encoded] };
    assert_eq!(BackingHeader::newest(copies, false), Ok(Some(header)), "it changes when written");
    true
}

/// A catalogue of devices.
pub fn catalogue(bytes: &[u8]) -> bool {
    text(bytes).is_some_and(|text| Catalogue::parse(text).is_ok())
}

/// A configuration file.
pub fn config(bytes: &[u8]) -> bool {
    let Some(Ok(config)) = text(bytes).map(Config::from_toml) else { return false };
    assert!(config.changed_keys(&config).is_empty(), "it differs from itself");
    true
}

/// A server's reply on its control address.
pub fn control_reply(bytes: &[u8]) -> bool {
    forebay_serve::control::fuzz::fuzz_reply(bytes)
}

/// A request on the control address.
pub fn control_request(bytes: &[u8]) -> bool {
    forebay_serve::control::fuzz::fuzz_request(bytes)
}

/// Every decoder of flash contents, on the same bytes.
pub fn flash_pages(bytes: &[u8]) -> bool {
    forebay_flash::fuzz::decode(bytes);
    Superblock::decode(bytes).is_ok()
}

/// The device of a flash tier, which is checked and then recovered.
pub fn flash_recovery(bytes: &[u8]) -> bool {
    // Each start generates an event. A successful recovery also generates one for each record that
    // it finds.
    forebay_flash::fuzz::recover(bytes) > 2
}

/// Data that a client receives from a server. The first two bytes choose the configuration of the
/// client and how the rest is split.
pub fn nbd_client(bytes: &[u8]) -> bool {
    forebay_nbd::fuzz::fuzz_client(bytes)
}

/// Data that a server receives from a client. The first two bytes choose the configuration of the
/// server and how the rest is split.
pub fn nbd_server(bytes: &[u8]) -> bool {
    forebay_nbd::fuzz::fuzz_server(bytes)
}

/// Data that a server receives after the handshake.
pub fn nbd_transmission(bytes: &[u8]) -> bool {
    forebay_nbd::fuzz::fuzz_transmission(bytes)
}

/// The address of an export.
pub fn nbd_uri(bytes: &[u8]) -> bool {
    text(bytes).is_some_and(forebay_nbd::fuzz::fuzz_uri)
}

/// A description of a synthetic workload.
pub fn synth(bytes: &[u8]) -> bool {
    // A description may be a file name, but this target must not read files.
    let is_inline = |text: &&str| text.contains(['=', '\n']) && !text.ends_with(".toml");
    let Some(text) = text(bytes).filter(is_inline) else { return false };
    Spec::parse(text).is_ok_and(|spec| spec.phases().is_ok())
}

/// A tape. The first byte chooses the cache: with or without flash.
pub fn tape(bytes: &[u8]) -> bool {
    let Some((&choice, bytes)) = bytes.split_first() else { return false };
    replay(bytes, seeds::tape_config(choice & 1 == 1)).is_ok()
}

/// A trace. The first byte chooses the format, by its index in the list of formats (if there is
/// none, the format is detected), and whether to skip bad lines.
pub fn trace(bytes: &[u8]) -> bool {
    forebay_trace::fuzz::fuzz_trace(bytes);
    let Some((&choice, bytes)) = bytes.split_first() else { return false };
    let format = FORMATS.get(usize::from(choice >> 1)).map(|format| format.name.to_owned());
    let options = OpenOptions { format, ..OpenOptions::default() };
    let Ok(mut reader) = open_bytes(bytes.to_vec(), &options) else { return false };
    matches!(reader.read_batch(&mut Batch::default()), Ok(n) if n > 0)
}

/// Sizes, times, addresses and modes of files, as in configurations and arguments.
pub fn units(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    let size = text.parse::<Size>();
    if let Ok(size) = size
        && size.0 < 1 << 63
    {
        // The displayed size is rounded, but can be parsed.
        assert!(size.to_string().parse::<Size>().is_ok(), "{text:?} is shown as no size");
    }
    let time = text.parse::<TimeSpan>();
    if let Ok(time) = &time {
        assert_eq!(time.to_string().parse(), Ok(*time), "{text:?} is shown as another time");
    }
    let address = text.parse::<Address>();
    if let Ok(address) = &address {
        let shown = address.to_string();
        assert_eq!(shown.parse().as_ref(), Ok(address), "{text:?} is shown as another address");
    }
    size.is_ok() || time.is_ok() || address.is_ok() || text.parse::<FileMode>().is_ok()
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
