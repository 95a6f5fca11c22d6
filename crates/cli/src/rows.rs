//! Raw rows as Parquet: columns of numbers and names, without a data-frame library.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::error::CliError;
use crate::output::write_file;

/// A table in memory, column by column; all columns are equally long.
#[derive(Default)]
pub struct Rows {
    columns: Vec<(&'static str, Values)>,
}

enum Values {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    OptionalReals(Vec<Option<f64>>),
    Texts(Vec<ByteArray>),
}

impl Rows {
    /// Adds a column of counts; those beyond `i64` become its largest value.
    pub fn integers(mut self, name: &'static str, values: impl Iterator<Item = u64>) -> Self {
        let values = values.map(|v| i64::try_from(v).unwrap_or(i64::MAX)).collect();
        self.columns.push((name, Values::Integers(values)));
        self
    }

    /// Adds a column of real numbers.
    pub fn reals(mut self, name: &'static str, values: impl Iterator<Item = f64>) -> Self {
        self.columns.push((name, Values::Reals(values.collect())));
        self
    }

    /// Adds a column of real numbers, null where there is none.
    pub fn optional_reals(
        mut self,
        name: &'static str,
        values: impl Iterator<Item = Option<f64>>,
    ) -> Self {
        self.columns.push((name, Values::OptionalReals(values.collect())));
        self
    }

    /// Adds a column of texts.
    pub fn texts<'a>(mut self, name: &'static str, values: impl Iterator<Item = &'a str>) -> Self {
        self.columns.push((name, Values::Texts(values.map(ByteArray::from).collect())));
        self
    }

    /// Writes the table to `path`, which appears complete or not at all.
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        let bytes = self.encode().map_err(|e| CliError::file("cannot encode", path, e))?;
        write_file(path, &bytes)
    }

    fn encode(&self) -> Result<Vec<u8>, ParquetError> {
        let fields = self.columns.iter().map(|(name, values)| Ok(Arc::new(values.field(name)?)));
        let fields = fields.collect::<Result<_, ParquetError>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(zstd).build();
        let mut bytes = Vec::new();
        let mut file =
            SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for (_, values) in &self.columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Values::Integers(v) => column.typed::<Int64Type>().write_batch(v, None, None)?,
                Values::Reals(v) => column.typed::<DoubleType>().write_batch(v, None, None)?,
                Values::OptionalReals(v) => {
                    let there: Vec<f64> = v.iter().flatten().copied().collect();
                    let levels: Vec<i16> = v.iter().map(|v| v.is_some().into()).collect();
                    column.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?
                }
                Values::Texts(v) => column.typed::<ByteArrayType>().write_batch(v, None, None)?,
            };
            column.close()?;
        }
        group.close()?;
        file.close()?;
        Ok(bytes)
    }
}

impl Values {
    fn field(&self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Values::Integers(_) => (Physical::INT64, None),
            Values::Reals(_) | Values::OptionalReals(_) => (Physical::DOUBLE, None),
            Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical);
        let repetition = match self {
            Values::OptionalReals(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        field.with_repetition(repetition).with_logical_type(logical).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn rows_are_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let rows = Rows::default()
            .texts("name", ["a", "ü"].into_iter())
            .integers("size", [1, u64::MAX].into_iter())
            .reals("ratio", [0.5, 1.0].into_iter())
            .optional_reals("late", [None, Some(2.5)].into_iter());
        rows.write(&path).unwrap();
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
