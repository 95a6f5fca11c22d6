//! Parses the data of options, and encodes the replies to them.

use crate::export::ExportInfo;
use crate::wire::{
    Fields, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, TransmissionFlags, clipped, info, option_reply,
    protocol_string,
};

/// The data of INFO and GO: an export's name and the types of information requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct InfoRequest<'a> {
    pub name: &'a str,
    wanted: Fields<'a>,
}

impl<'a> InfoRequest<'a> {
    pub fn parse(data: &'a [u8]) -> Option<InfoRequest<'a>> {
        let mut fields = Fields(data);
        let name_bytes = fields.u32()?;
        let name = protocol_string(fields.bytes(usize::try_from(name_bytes).ok()?)?)?;
        let count = fields.u16()?;
        (fields.0.len() == usize::from(count) * 2).then_some(InfoRequest { name, wanted: fields })
    }

    pub fn wants(&self, kind: u16) -> bool {
        let mut wanted = self.wanted;
        core::iter::from_fn(|| wanted.u16()).any(|w| w == kind)
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT: an export's name and queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextQueries<'a> {
    pub export: &'a str,
    pub count: u32,
    queries: Fields<'a>,
}

impl<'a> ContextQueries<'a> {
    /// Parses the data and checks that every query is valid, so that iteration cannot fail.
    pub fn parse(data: &'a [u8]) -> Option<ContextQueries<'a>> {
        let mut fields = Fields(data);
        let export = Self::string(&mut fields)?;
        let count = fields.u32()?;
        let parsed = ContextQueries { export, count, queries: fields };
        for _ in 0..count {
            Self::string(&mut fields)?;
        }
        fields.is_empty().then_some(parsed)
    }

    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut fields = self.queries;
        core::iter::from_fn(move || Self::string(&mut fields))
    }

    fn string(fields: &mut Fields<'a>) -> Option<&'a str> {
        let bytes = fields.u32()?;
        protocol_string(fields.bytes(usize::try_from(bytes).ok()?)?)
    }
}

/// Appends one reply to `option`.
pub(super) fn put_reply(option: u32, kind: u32, data: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = data.iter().map(|d| d.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in data {
        out.extend_from_slice(part);
    }
}

/// Appends one entry of a list.
pub(super) fn put_server(option: u32, export: &ExportInfo, out: &mut Vec<u8>) {
    let name = clipped(&export.name, STRING_BYTES_MAX);
    let description = clipped(&export.description, STRING_BYTES_MAX);
    let length = (name.len() as u32).to_be_bytes();
    let data: [&[u8]; 3] = [&length, name.as_bytes(), description.as_bytes()];
    put_reply(option, option_reply::SERVER, &data, out);
}

/// Appends the information about an export: always its size, flags and block sizes, and its name
/// and description when requested.
pub(super) fn put_info(
    option: u32,
    request: &InfoRequest<'_>,
    export: &ExportInfo,
    flags: TransmissionFlags,
    out: &mut Vec<u8>,
) {
    let mut put = |kind: u16, data: &[&[u8]]| {
        let kind = kind.to_be_bytes();
        let mut parts: [&[u8]; 4] = [&kind, &[], &[], &[]];
        parts[1..=data.len()].copy_from_slice(data);
        put_reply(option, option_reply::INFO, &parts, out);
    };
    let size = export.advertised_bytes().to_be_bytes();
    put(info::EXPORT, &[&size, &flags.0.to_be_bytes()]);
    if request.wants(info::NAME) {
        put(info::NAME, &[clipped(&export.name, STRING_BYTES_MAX).as_bytes()]);
    }
    if request.wants(info::DESCRIPTION) && !export.description.is_empty() {
        put(info::DESCRIPTION, &[clipped(&export.description, STRING_BYTES_MAX).as_bytes()]);
    }
    let sizes = export.block_sizes;
    put(
        info::BLOCK_SIZE,
        &[
            &sizes.minimum_bytes().to_be_bytes(),
            &sizes.preferred_bytes().to_be_bytes(),
            &sizes.payload_bytes_max().to_be_bytes(),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_request_must_fill_its_data_exactly() {
        let data = b"\0\0\0\x01a\0\x02\0\x03\0\x01";
        let request = InfoRequest::parse(data).unwrap();
        assert_eq!(request.name, "a");
        assert!(request.wants(info::BLOCK_SIZE) && request.wants(info::NAME));
        assert!(!request.wants(info::DESCRIPTION));
        for cut in 0..data.len() {
            assert!(InfoRequest::parse(&data[..cut]).is_none());
        }
        assert!(InfoRequest::parse(b"\0\0\0\x01a\0\0\0").is_none());
        assert!(InfoRequest::parse(b"\xff\xff\xff\xffa\0\0").is_none());
    }

    #[test]
    fn queries_that_reach_beyond_their_data_are_refused() {
        let data = b"\0\0\0\x01a\0\0\0\x02\0\0\0\x02x:\0\0\0\x03y:z";
        let parsed = ContextQueries::parse(data).unwrap();
        assert_eq!((parsed.export, parsed.count), ("a", 2));
        assert_eq!(parsed.queries().collect::<Vec<_>>(), ["x:", "y:z"]);
        for cut in 0..data.len() {
            assert!(ContextQueries::parse(&data[..cut]).is_none());
        }
        assert!(ContextQueries::parse(b"\0\0\0\0\xff\xff\xff\xff").is_none());
        assert!(ContextQueries::parse(b"\0\0\0\0\0\0\0\0x").is_none());
    }
}
