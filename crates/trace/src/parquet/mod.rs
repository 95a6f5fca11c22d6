//! Forebay's own trace format: Parquet with zstd. The reference is `docs/trace-formats.md`.
//!
//! Considerations: any data tool reads Parquet; columns compress block traces to a few bytes per
//! request; row groups let a writer stream and readers work in parallel. The optional columns are
//! always present, so that every file has the same schema; they cost next to nothing when all their
//! values are null. Facts about the trace as a whole are in the key-value metadata at the end of
//! the file, because a recorder learns volumes and hashes while it records.

mod chunks;
mod metadata;
mod reader;
mod writer;

use std::sync::{Arc, LazyLock};

use parquet::{
    basic::{LogicalType, Repetition, Type as Physical},
    errors::ParquetError,
    schema::types::{Type, TypePtr},
};

use crate::formats::format::Format;

pub use reader::ParquetTraceReader;
pub use writer::{ParquetTraceWriter, Written};

/// The newest version of the format that this crate reads, and the one that it writes.
pub const FORMAT_VERSION: u32 = 1;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "parquet",
    summary: "Forebay's own: Parquet with the columns time_ns, volume, op, flags, offset, length",
    detect: |head| if head.bytes.starts_with(b"PAR1") { 100 } else { 0 },
    open: |source, _, params| {
        params.finish("")?;
        Ok(Box::new(ParquetTraceReader::from_source(source)?))
    },
};

/// The message of a Parquet error. For an error from outside the library, this is the message of
/// the cause, without the library's prefix.
fn said(error: &ParquetError) -> String {
    match error {
        ParquetError::External(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

/// The columns, in order. The numbers are positions in the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Time,
    Volume,
    Op,
    Flags,
    Offset,
    Length,
    Hashes,
    Latency,
    Result,
    Gap,
}

impl Column {
    const ALL: [Column; 10] = [
        Column::Time,
        Column::Volume,
        Column::Op,
        Column::Flags,
        Column::Offset,
        Column::Length,
        Column::Hashes,
        Column::Latency,
        Column::Result,
        Column::Gap,
    ];

    const fn name(self) -> &'static str {
        match self {
            Column::Time => "time_ns",
            Column::Volume => "volume",
            Column::Op => "op",
            Column::Flags => "flags",
            Column::Offset => "offset",
            Column::Length => "length",
            Column::Hashes => "hashes",
            Column::Latency => "latency_ns",
            Column::Result => "result",
            Column::Gap => "gap_ns",
        }
    }

    const fn optional(self) -> bool {
        matches!(self, Column::Hashes | Column::Latency | Column::Result | Column::Gap)
    }

    fn schema(self) -> TypePtr {
        let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
        let (physical, logical) = match self {
            Column::Time | Column::Offset | Column::Length | Column::Latency | Column::Gap => {
                (Physical::INT64, unsigned(64))
            }
            Column::Volume => (Physical::INT32, unsigned(32)),
            Column::Op | Column::Flags | Column::Result => (Physical::INT32, unsigned(8)),
            Column::Hashes => (Physical::BYTE_ARRAY, None),
        };
        let repetition = if self.optional() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let column = Type::primitive_type_builder(self.name(), physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        Arc::new(column.expect("the schema is valid"))
    }
}

static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let columns = Column::ALL.iter().map(|c| c.schema()).collect();
    let schema = Type::group_type_builder("forebay_trace").with_fields(columns).build();
    Arc::new(schema.expect("the schema is valid"))
});
