//! Raw rows as Parquet, without a data-frame library.

use std::sync::Arc;

use forebay_analysis::{Columns, Values};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
pub use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// The bytes of a Parquet file with these rows.
///
/// # Errors
/// If they cannot be encoded.
pub fn parquet(rows: &Columns) -> Result<Vec<u8>, ParquetError> {
    let fields = rows.iter().map(|(name, values)| Ok(Arc::new(field(name, values)?)));
    let fields = fields.collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(zstd).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (_, values) in rows.iter() {
        let Some(mut column) = group.next_column()? else { break };
        match values {
            Values::Integers(v) => column.typed::<Int64Type>().write_batch(v, None, None)?,
            Values::Reals(v) => column.typed::<DoubleType>().write_batch(v, None, None)?,
            Values::OptionalReals(v) => {
                let there: Vec<f64> = v.iter().flatten().copied().collect();
                let levels: Vec<i16> = v.iter().map(|v| v.is_some().into()).collect();
                column.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?
            }
            Values::Texts(v) => {
                let texts: Vec<ByteArray> = v.iter().map(|v| v.as_str().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?
            }
        };
        column.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn field(name: &str, values: &Values) -> Result<Type, ParquetError> {
    let (physical, logical) = match values {
        Values::Integers(_) => (Physical::INT64, None),
        Values::Reals(_) | Values::OptionalReals(_) => (Physical::DOUBLE, None),
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let field = Type::primitive_type_builder(name, physical);
    let repetition = match values {
        Values::OptionalReals(_) => Repetition::OPTIONAL,
        _ => Repetition::REQUIRED,
    };
    field.with_repetition(repetition).with_logical_type(logical).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn rows_are_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let rows = Columns::default()
            .texts("name", ["a", "ü"].into_iter())
            .integers("size", [1, u64::MAX].into_iter())
            .reals("ratio", [0.5, 1.0].into_iter())
            .optional_reals("late", [None, Some(2.5)].into_iter());
        std::fs::write(&path, parquet(&rows).unwrap()).unwrap();
        let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> =
            file.get_row_iter(None).unwrap().map(|r| r.unwrap().to_string()).collect();
        assert_eq!(
            rows,
            [
                r#"{name: "a", size: 1, ratio: 0.5, late: null}"#.to_string(),
                format!(r#"{{name: "ü", size: {}, ratio: 1.0, late: 2.5}}"#, i64::MAX)
            ]
        );
    }
}
