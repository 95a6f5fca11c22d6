//! Writes raw rows as Parquet, without a data-frame library.

use std::sync::Arc;

use forebay_analysis::{Column, Columns, Values};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
pub use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

/// Encodes the rows as the bytes of a Parquet file.
///
/// # Errors
/// If the rows cannot be encoded.
pub fn parquet(rows: &Columns) -> Result<Vec<u8>, ParquetError> {
    let fields = rows.iter().map(|column| Ok(Arc::new(field(column)?)));
    let fields = fields.collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(zstd).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in rows.iter() {
        let Some(mut to) = group.next_column()? else { break };
        match &column.values {
            Values::Booleans(v) => write::<BoolType>(&mut to, column, v.iter().copied())?,
            Values::Integers(v) => write::<Int64Type>(&mut to, column, v.iter().copied())?,
            Values::Reals(v) => write::<DoubleType>(&mut to, column, v.iter().copied())?,
            Values::Texts(v) => {
                write::<ByteArrayType>(&mut to, column, v.iter().map(|v| v.as_str().into()))?
            }
        }
        to.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn write<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    column: &Column,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let Some(there) = &column.there else {
        to.typed::<T>().write_batch(&values.collect::<Vec<_>>(), None, None)?;
        return Ok(());
    };
    let levels: Vec<i16> = there.iter().map(|&there| there.into()).collect();
    let values = values.zip(there).filter_map(|(value, there)| there.then_some(value));
    to.typed::<T>().write_batch(&values.collect::<Vec<_>>(), Some(&levels), None)?;
    Ok(())
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Booleans(_) => (Physical::BOOLEAN, None),
        Values::Integers(_) => (Physical::INT64, None),
        Values::Reals(_) => (Physical::DOUBLE, None),
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let field = Type::primitive_type_builder(&column.name, physical);
    let is_required = column.there.is_none();
    let repetition = if is_required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    field.with_repetition(repetition).with_logical_type(logical).build()
}

#[cfg(test)]
mod tests {
    //! Goal: a Parquet file has the same values as the JSON document of the same rows. Method:
    //! write rows with every kind of value, read them back, and compare them with the output of
    //! serde_json.

    use std::io::Write;

    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use parquet::schema::types::ColumnDescPtr;
    use serde::{Deserialize, Serialize};
    use serde_json::{Map, Value, json};

    type Both = (Key, Row);

    #[derive(Serialize, Deserialize, Clone, Default)]
    struct Key {
        name: String,
        size: u64,
    }

    #[derive(Serialize, Deserialize, Clone, Default)]
    struct Row {
        way: Way,
        is_exact: bool,
        jobs: u32,
        hits: Hits,
        ratio: f64,
        target: Option<u64>,
        said: Option<String>,
        late: Option<Hits>,
        #[serde(skip_serializing_if = "Option::is_none")]
        bound: Option<f64>,
        list: Vec<f64>,
    }

    #[derive(Serialize, Deserialize, Clone, Default)]
    struct Hits {
        read: u64,
        share: Option<f64>,
    }

    #[derive(Serialize, Deserialize, Clone, Default)]
    #[serde(rename_all = "kebab-case")]
    enum Way {
        #[default]
        Grow,
        AddTier,
    }

    const SCHEMA: &str = "name BYTE_ARRAY, size INT64, way BYTE_ARRAY, is_exact BOOLEAN, jobs INT64, \
        hits_read INT64, hits_share DOUBLE or null, ratio DOUBLE, target INT64 or null, \
        said BYTE_ARRAY or null, late_read INT64 or null, late_share DOUBLE or null, \
        bound DOUBLE or null";

    /// One row has values in all columns except `late_share`; the others have only the required
    /// values.
    fn rows() -> [Both; 3] {
        let full = Row {
            way: Way::AddTier,
            is_exact: true,
            jobs: 2,
            hits: Hits { read: 4, share: Some(0.25) },
            ratio: 0.5,
            target: Some(7),
            said: Some("so".into()),
            late: Some(Hits { read: 5, share: None }),
            bound: Some(2.5),
            list: vec![1.0],
        };
        [Both::default(), (Key { name: "ü".into(), size: 2 }, full), Both::default()]
    }

    /// The schema, and the non-null values of each row.
    fn read_back(rows: &[Both]) -> (String, Vec<Map<String, Value>>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&parquet(&Columns::from_rows(rows.iter().cloned())).unwrap()).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let column = |column: &ColumnDescPtr| {
            let nullable = if column.self_type().is_optional() { " or null" } else { "" };
            format!("{} {}{nullable}", column.name(), column.physical_type())
        };
        let schema = file.metadata().file_metadata().schema_descr().columns();
        let schema: Vec<String> = schema.iter().map(column).collect();
        let cell = |(name, field): (&String, &Field)| match field {
            Field::Null => None,
            Field::Bool(value) => Some((name.clone(), json!(value))),
            Field::Long(value) => Some((name.clone(), json!(value))),
            Field::Double(value) => Some((name.clone(), json!(value))),
            Field::Str(value) => Some((name.clone(), json!(value))),
            other => panic!("{name} is {other}"),
        };
        let rows = file.get_row_iter(None).unwrap();
        let rows = rows.map(|row| row.unwrap().get_column_iter().filter_map(cell).collect());
        (schema.join(", "), rows.collect())
    }

    /// The non-null values of a JSON document, without its lists.
    fn flat(prefix: &str, document: &Value) -> Map<String, Value> {
        let mut flattened = Map::new();
        for (name, value) in document.as_object().unwrap() {
            match value {
                Value::Null | Value::Array(_) => {}
                Value::Object(_) => flattened.extend(flat(&format!("{prefix}{name}_"), value)),
                _ => drop(flattened.insert(format!("{prefix}{name}"), value.clone())),
            }
        }
        flattened
    }

    #[test]
    fn rows_are_read_back_as_json_has_them() {
        let (schema, found) = read_back(&rows());
        assert_eq!(schema, SCHEMA);
        let expected = rows().into_iter().map(|(key, row)| {
            let mut expected = flat("", &serde_json::to_value(key).unwrap());
            expected.extend(flat("", &serde_json::to_value(row).unwrap()));
            expected
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(found[1].len(), SCHEMA.split(", ").count() - 1);
    }

    #[test]
    fn the_schema_is_the_same_without_rows_and_without_values() {
        assert_eq!(read_back(&[]), (SCHEMA.to_owned(), vec![]));
        assert_eq!(read_back(&rows()[..1]).0, SCHEMA);
    }

    #[test]
    fn numbers_that_json_or_parquet_lacks_are_as_near_as_can_be() {
        let mut rows = rows();
        (rows[0].0.size, rows[0].1.ratio) = (u64::MAX, f64::INFINITY);
        rows[1].1.ratio = f64::NAN;
        let columns = Columns::from_rows(rows.iter().cloned());
        let ratio = columns.iter().find(|column| column.name == "ratio").unwrap();
        let Values::Reals(ratios) = &ratio.values else { panic!("{ratio:?}") };
        assert!(ratios[0] == f64::INFINITY && ratios[1].is_nan() && ratio.there.is_none());
        rows[0].1.ratio = 0.5;
        assert_eq!(read_back(&rows[..1]).1[0]["size"], i64::MAX);
    }
}
