//! Inputs that the targets accept, each of at most a few kilobytes.

// Helpers from other tests: they build protocol messages, and traces of each format.
#[allow(missing_docs, unused)]
#[path = "../../crates/nbd/tests/support/mod.rs"]
mod nbd;
#[allow(missing_docs, dead_code)]
#[path = "../../crates/trace/tests/common/fixtures.rs"]
mod traces;

use std::path::Path;

use forebay_block::{Flags, Op};
use forebay_cache::CacheConfig;
use forebay_config::{BackingLayout, Config};
use forebay_engine::backing_header::{BackingHeader, COPY_BYTES};
use forebay_engine::{Engine, EngineOptions, StopMode, Submission, cache_config};
use forebay_flash::{HeaderFields, StoreHeader, StoreId, TierId};
use forebay_plan::Catalogue;
use forebay_trace::{FORMATS, Metadata, ParquetTraceWriter, Record, Spec, Synth};

use crate::flash_device;

/// Inputs, each with a name.
pub type Seeds = Vec<(String, Vec<u8>)>;

fn named<const N: usize>(seeds: [(&str, &[u8]); N]) -> Seeds {
    seeds.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).to_vec()
}

/// One input per text, named by numbers.
fn lines<const N: usize>(texts: [&str; N]) -> Seeds {
    texts.iter().zip(1..).map(|(text, n)| (n.to_string(), text.as_bytes().to_vec())).collect()
}

/// Headers of backing stores.
pub fn backing_header() -> Seeds {
    let uuid = StoreId::new(*b"store-0123456789");
    let header = |layout, fields| {
        let state = StoreHeader::from_fields(HeaderFields { data_bytes: 1 << 30, ..fields });
        BackingHeader { layout, uuid, state: state.expect("the numbers are low") }.encode()
    };
    let none = [0; COPY_BYTES];
    let first = [header(BackingLayout::Offset, HeaderFields::default()), none].concat();
    let flash_uuid = Some(TierId::new(*b"flash-0123456789"));
    let dirty =
        HeaderFields { update: 1, generation: 1, flash_uuid, dirty: true, ..Default::default() };
    let older = header(BackingLayout::Offset, dirty);
    let second = [none, older].concat();
    let released = HeaderFields { update: 2, released: true, ..dirty };
    let both = [header(BackingLayout::Tail, released), older].concat();
    named([("first", &first[..]), ("second", &second[..]), ("both", &both[..])])
}

/// The built-in catalogue.
pub fn catalogue() -> Seeds {
    named([("default", Catalogue::DEFAULT_TOML.as_bytes())])
}

/// Configurations.
pub fn config() -> Seeds {
    let example = include_str!("../../packaging/forebay.toml");
    let all = "[cache]\ndram = '1GiB'\nblock_size = '8KiB'\nwrite_policy = 'write-back'\n\
               acknowledge = 'flash'\n[flash]\npath = '/dev/x'\nsize = '10GiB'\nshape = 'near'\n\
               [[volume]]\nname = 'a'\nbacking = '/dev/y'\nlayout = 'tail'\n\
               [[volume]]\nname = 'b'\nbacking = 'nbd://127.0.0.1/b'\nsize = '1TB'\n\
               [serve]\nnbd = 'tcp:127.0.0.1:10809'\nidle_timeout = '1h 30min'\n\
               [shape.near]\ndevice = 'san'\n";
    named([("example", example.as_bytes()), ("all", all.as_bytes()), ("empty", b"")])
}

/// Replies of a server on its control address.
pub fn control_reply() -> Seeds {
    named([
        ("whole", b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"stopping\":true}\n"),
        (
            "chunks",
            b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
        ),
    ])
}

/// Requests on the control address, with the token.
pub fn control_request() -> Seeds {
    let headers = "host: 127.0.0.1:9100\nauthorization: Bearer 0123456789abcdef0123456789abcdef";
    let with = |target: &str| format!("{target}\n{headers}").into_bytes();
    named([
        ("set", &with("/set?write_policy=write-back&acknowledge=dram")[..]),
        ("resize", &with("/resize?dram=1073741824")[..]),
        ("quiesce", &with("http://localhost:9100/quiesce?for=1.5")[..]),
        ("invalidate", &with("/invalidate?volume=vm%201")[..]),
    ])
}

/// Superblocks.
pub fn flash_pages() -> Seeds {
    let image = flash_device::image(2);
    named([("superblock", &image[..4096.min(image.len())])])
}

/// Devices with records in their logs.
pub fn flash_recovery() -> Seeds {
    let image = flash_device::image;
    named([("one", &image(1)[..]), ("short", &image(2)[..]), ("reused", &image(9)[..])])
}

/// Data from servers, with simple and with structured replies.
pub fn nbd_client() -> Seeds {
    let answer = |option: u32, kind: u32, data: &[u8]| {
        let magic = 0x0003_e889_0455_65a9u64.to_be_bytes();
        let words = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
        [&magic[..], &words, data].concat()
    };
    let greeting = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let export = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0x0f, 0xed]].concat();
    let chosen = [answer(7, 3, &export), answer(7, 1, &[])].concat();
    let cookie = (1u64 << 32).to_be_bytes();
    let reply = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5][..], &cookie].concat();
    let simple = [&[0, 255][..], &greeting, &chosen, &reply].concat();
    let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
    let agreed =
        [answer(8, 1, &[]), answer(10, 4, &context), answer(10, 1, &[]), chosen.clone()].concat();
    // The last chunk: an error with number 5 and no message.
    let error = [0, 0, 0, 6, 0, 0, 0, 5, 0, 0];
    let chunk = [&[0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1][..], &cookie, &error].concat();
    let structured = [&[0xa0, 255][..], &greeting, &agreed, &chunk].concat();
    named([("simple", &simple[..]), ("structured", &structured[..])])
}

/// Data from clients.
pub fn nbd_server() -> Seeds {
    let requests = requests();
    let go = nbd::option(7, &nbd::go_data("a", &[3]));
    let opening = [vec![0, 255], nbd::client_flags(3)].concat();
    let plain = [&opening[..], &go, &requests].concat();
    let contexts = nbd::option(10, &nbd::context_data("a", &["base:allocation"]));
    let asked = [nbd::option(3, &[]), nbd::option(8, &[]), contexts].concat();
    let structured = [&[0x20, 7][..], &nbd::client_flags(3), &asked, &go, &requests].concat();
    named([("plain", &plain[..]), ("structured", &structured[..])])
}

/// Data from clients after the handshake.
pub fn nbd_transmission() -> Seeds {
    let compact = [&[0, 255][..], &requests()].concat();
    let extended = [&[8, 3][..], &nbd::extended(0, 0, 1, 4096, 4096)].concat();
    named([("compact", &compact[..]), ("extended", &extended[..])])
}

/// Requests to write, read, trim and flush.
fn requests() -> Vec<u8> {
    [
        nbd::compact(1, 1, 1, 0, 512),
        vec![7; 512],
        nbd::compact(0, 0, 2, 0, 4096),
        nbd::compact(4, 0, 3, 8192, 4096),
        nbd::compact(3, 0, 4, 0, 0),
    ]
    .concat()
}

/// Addresses of exports.
pub fn nbd_uri() -> Seeds {
    lines([
        "nbd://127.0.0.1:10810/vm1",
        "nbd://[::1]/",
        "nbd+unix:///a%20b?socket=/run/forebay/nbd.sock",
    ])
}

/// Descriptions of workloads.
pub fn synth() -> Seeds {
    let phases = "[[phase]]\nrequests = 100\n[[phase.component]]\npattern = 'zipf'\nblocks = 10\n";
    lines([
        "zipf:blocks=2M,theta=0.99,requests=1M,write=0.3,seed=1",
        "sequential:blocks=7,requests=100 + zipf:blocks=50,theta=0",
        "zoned:blocks=100,requests=200,zones=0.9@0.1",
        "zipf:blocks=100,requests=300,rate=1000,arrival=poisson,write=0.5,size=4KiB",
        phases,
    ])
}

const TAPE_FLASH_BYTES: u64 = 4 << 20;

/// The configuration of the cache for the `tape` target, with or without flash.
pub fn tape_config(flash: bool) -> CacheConfig {
    let bytes = flash.then_some(TAPE_FLASH_BYTES);
    cache_config(&small_cache(Path::new("/"), flash), bytes).expect("a configuration")
}

fn small_cache(directory: &Path, flash: bool) -> Config {
    let mut text = format!(
        "[cache]\ndram = '256KiB'\nwrite_policy = 'write-back'\nacknowledge = 'dram'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '1MiB'\n\
         [workers]\nshards = 1\n",
        directory.join("disk.img").display()
    );
    if flash {
        let path = directory.join("flash.img");
        text += &format!(
            "[flash]\npath = '{}'\nsize = '4MiB'\nlayout = 'log'\nregion_size = '256KiB'\nbatch_size = '64KiB'\n",
            path.display()
        );
    }
    Config::from_toml(&text).expect("a configuration")
}

/// Tapes that the engine recorded, without and with flash.
pub fn tape() -> Seeds {
    let directory = tempfile::tempdir().expect("a directory");
    let first_byte = |flash: bool, tape: Vec<u8>| [vec![flash.into()], tape].concat();
    [("run", false), ("flash", true)]
        .map(|(name, flash)| {
            let stores = directory.path().join(name);
            std::fs::create_dir_all(&stores).expect("a directory");
            (name.to_owned(), first_byte(flash, recorded(&small_cache(&stores, flash))))
        })
        .to_vec()
}

fn recorded(config: &Config) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let tape = directory.path().join("tape");
    let options =
        EngineOptions { tape: Some(tape.clone()), one_at_a_time: true, ..EngineOptions::default() };
    let engine = Engine::open(config, options).expect("an engine");
    let volume = engine.volumes()[0].volume;
    let mut session = engine.session().expect("a session");
    for (tag, op) in [Op::Write, Op::Read, Op::Trim, Op::Read, Op::Flush].into_iter().enumerate() {
        let bytes = if op == Op::Flush { 0 } else { 8192 };
        let buffer = matches!(op, Op::Read | Op::Write).then(|| session.buffer(8192));
        let (tag, flags) = (tag as u64, Flags::NONE);
        let request = Submission { tag, volume, op, flags, offset: 0, length: bytes, buffer };
        let (mut requests, mut done) = (vec![request], Vec::new());
        session.submit(&mut requests, &mut done);
        while done.is_empty() {
            session.wait(None, &mut done);
        }
    }
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).expect("a stop");
    std::fs::read(tape).expect("a tape")
}

/// A trace of each format.
pub fn trace() -> Seeds {
    let choice =
        |format: &str| FORMATS.iter().position(|f| f.name == format).map_or(255, |n| n as u8) << 1;
    let mut seeds: Seeds = traces::FIXTURES
        .iter()
        .map(|f| (f.format.to_owned(), [vec![choice(f.format)], f.bytes()].concat()))
        .collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.parquet");
    let mut writer = ParquetTraceWriter::create(&path).expect("a file");
    let spec = Spec::parse("zipf:blocks=100,requests=50,write=0.5").expect("a workload");
    for request in Synth::new(&spec).expect("a workload") {
        let record = Record { hashes: &[7; 16], ..request.into() };
        writer.push(record).expect("room for a trace");
    }
    writer.finish(&Metadata::default()).expect("room for a trace");
    let parquet = std::fs::read(path).expect("the trace");
    seeds.push(("parquet".to_owned(), [vec![choice("parquet")], parquet].concat()));
    seeds
}

/// Sizes, times, addresses, modes.
pub fn units() -> Seeds {
    lines([
        "1.5GiB",
        "512",
        "1h 30min",
        "90s",
        "unix:/run/forebay/nbd.sock",
        "tcp:[::1]:10809",
        "0660",
    ])
}
