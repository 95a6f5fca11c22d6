//! Runs the fuzz targets on three kinds of input: arbitrary bytes, well-formed messages in any
//! order, and such messages with a few bytes corrupted.

use crate::support::*;
use forebay_nbd::fuzz::{fuzz_client, fuzz_server, fuzz_transmission, fuzz_uri};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["", "a", "b", "c", "nope", "a\0"][..])
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let queries =
        prop::sample::subsequence(&["base:allocation", "base:", "x-y:z", "none"][..], 0..4);
    prop_oneof![
        prop::sample::select(&[2u32, 3, 5, 8, 11, 99][..]).prop_map(|n| option(n, &[])),
        name().prop_map(|name| option(1, name.as_bytes())),
        (6u32..8, name(), prop::collection::vec(0u16..5, 0..5))
            .prop_map(|(number, name, wanted)| option(number, &go_data(name, &wanted))),
        (9u32..11, name(), queries)
            .prop_map(|(number, name, queries)| option(number, &context_data(name, &queries))),
    ]
}

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let length =
        prop_oneof![0u64..10, Just(512), Just(4096), Just(4608), Just(1 << 20), Just(1 << 33)];
    let offset = prop_oneof![0u64..10, Just(512), Just((1 << 20) - 512), Just(u64::MAX - 511)];
    (any::<bool>(), 0u16..9, 0u16..64, offset, length, any::<bool>()).prop_map(
        |(wide, command, flags, offset, length, with_payload)| {
            let header = if wide {
                extended(command, flags, 7, offset, length)
            } else {
                compact(command, flags, 7, offset, length as u32)
            };
            let payload = if with_payload { vec![0; length.min(5000) as usize] } else { vec![] };
            [header, payload].concat()
        },
    )
}

fn option_answers() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(vec![]),
        Just([&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0xff, 0xfd]].concat()),
        Just([0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 2, 0, 0, 0].to_vec()),
        Just([&1u32.to_be_bytes()[..], b"base:allocation"].concat()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    let numbers = prop::sample::select(&[3u32, 5, 6, 7, 8, 10, 11][..]);
    let kinds = prop::sample::select(&[1u32, 2, 3, 4, 0x8000_0001, 0x8000_0006][..]);
    (numbers, kinds, data).prop_map(|(number, kind, data)| {
        let head = [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], &number.to_be_bytes()].concat();
        [&head[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), &data].concat()
    })
}

/// What a server sends to bring a client into the transmission phase, in each style.
fn client_prelude(style: u8) -> Vec<u8> {
    let answer = |number: u32, kind: u32, data: &[u8]| {
        let head = [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], &number.to_be_bytes()].concat();
        [&head[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let mut wire = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let choice = [0, 0xa0, 0x80][usize::from(style)];
    match style {
        0 => {}
        1 => wire.extend(answer(8, 1, &[])),
        _ => wire.extend(answer(11, 1, &[])),
    }
    if style > 0 {
        let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
        wire.extend(answer(10, 4, &context));
        wire.extend(answer(10, 1, &[]));
    }
    let export = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0x0f, 0xed]].concat();
    wire.extend(answer(7, 3, &export));
    wire.extend(answer(7, 1, &[]));
    [vec![choice, 255], wire].concat()
}

/// Replies in `style`, mostly correct: a chunk may have a kind that does not match its length,
/// answer a request that was never sent, or lie outside its request.
fn reply_chunks(style: u8) -> impl Strategy<Value = Vec<u8>> {
    let cookie = (prop_oneof![9 => Just(1u64), 1 => 0u64..3], 0u64..8)
        .prop_map(|(generation, slot)| generation << 32 | slot);
    let shape = prop_oneof![
        12 => prop::sample::select(
            &[(0u16, 0u32), (1, 520), (1, 4104), (1, 1032), (2, 12), (5, 12), (6, 24), (0x8001, 6)][..]
        ),
        1 => (prop::sample::select(&[0u16, 1, 2, 5, 6, 0x8001, 0x8002, 0x8003][..]), 0u32..30),
    ];
    let style = prop_oneof![19 => Just(style), 1 => 0u8..3];
    (style, any::<bool>(), shape, cookie, 0u64..12, 0u32..10).prop_map(
        |(style, last, (kind, length), cookie, block, small)| {
            let offset = block * 512;
            let last = last || kind == 0;
            let head = [&u16::from(last).to_be_bytes()[..], &kind.to_be_bytes()].concat();
            let mut payload = vec![0; length as usize];
            let fixed: Vec<u8> = match kind {
                1 => offset.to_be_bytes().to_vec(),
                2 => [&offset.to_be_bytes()[..], &(small * 512).to_be_bytes()].concat(),
                5 => [1u32, small, 0].iter().flat_map(|w| w.to_be_bytes()).collect(),
                6 => [1, 1, 0, small, 0, 0].iter().flat_map(|w: &u32| w.to_be_bytes()).collect(),
                _ => [&small.to_be_bytes()[..], &[0, 0]].concat(),
            };
            let n = fixed.len().min(payload.len());
            payload[..n].copy_from_slice(&fixed[..n]);
            // The offset of an extended reply is its request's: tag % 4 sectors, see the target.
            let request_offset = cookie % 4 * 512;
            let cookie = cookie.to_be_bytes();
            match style {
                0 => [&[0x67, 0x44, 0x66, 0x98][..], &(small % 2).to_be_bytes(), &cookie].concat(),
                1 => {
                    let magic = [0x66, 0x8e, 0x33, 0xef];
                    [&magic[..], &head, &cookie, &length.to_be_bytes(), &payload].concat()
                }
                _ => {
                    let numbers = [request_offset.to_be_bytes(), u64::from(length).to_be_bytes()];
                    let magic = [0x6e, 0x8a, 0x27, 0x8c];
                    [&magic[..], &head, &cookie, &numbers.concat(), &payload].concat()
                }
            }
        },
    )
}

/// A sequence of messages, with up to three bytes corrupted.
fn soup(
    message: impl Strategy<Value = Vec<u8>>,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<u8>> {
    let spoilt = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::collection::vec(message, count), spoilt).prop_map(|(messages, spoilt)| {
        let mut bytes = messages.concat();
        for (index, value) in spoilt {
            if !bytes.is_empty() && value % 4 == 0 {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_every_session_sane(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_server(&bytes);
        fuzz_transmission(&bytes);
        fuzz_client(&bytes);
    }

    #[test]
    fn any_order_of_messages_leaves_a_server_sane(
        choice: u8,
        cut: u8,
        flags in 0u32..4,
        options in soup(options(), 0..12),
        requests in soup(requests(), 0..12),
    ) {
        let opening = [vec![choice, cut], client_flags(flags)].concat();
        fuzz_server(&[&opening[..], &options, &requests].concat());
        fuzz_server(&[&opening[..], &options, &option(7, &go_data("a", &[3])), &requests].concat());
        fuzz_transmission(&[&[choice, cut], &requests[..]].concat());
    }

    #[test]
    fn any_order_of_answers_leaves_a_client_sane(
        choice: u8,
        cut: u8,
        answers in soup(option_answers(), 0..12),
        (style, chunks) in (0u8..3).prop_flat_map(|style| (Just(style), soup(reply_chunks(style), 0..12))),
    ) {
        let mut prelude = client_prelude(style);
        fuzz_client(&[&[choice, cut], &b"NBDMAGICIHAVEOPT\0\x03"[..], &answers, &chunks].concat());
        fuzz_client(&[&prelude[..], &chunks].concat());
        prelude[1] = cut;
        fuzz_client(&[&prelude[..], &chunks].concat());
    }

    #[test]
    fn any_text_is_an_address_or_an_error(text in "(nbds?(\\+unix)?://)?[a-z%0-9:/?=&@\\[\\]]{0,40}") {
        fuzz_uri(&text);
    }
}
