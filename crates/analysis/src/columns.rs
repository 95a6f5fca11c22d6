//! The raw rows of an answer, as columns.

use std::any::type_name;

use marrow::array::{Array, BytesArray};
use marrow::bits;
use marrow::datatypes::Field;
use serde::{Deserialize, Serialize};
use serde_arrow::schema::{SchemaLike, TracingOptions};
use serde_arrow::utils::{Item, Items};

/// A table in memory. All columns have the same length. Names end in the unit: `_us`, `_bytes`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns(Vec<Column>);

/// A named column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// The name of the field, prefixed with the names of the fields that contain it:
    /// `hits_tier1_read`.
    pub name: String,
    /// One value per row; arbitrary where the value is missing.
    pub values: Values,
    /// For each row, whether there is a value. `None` if there always is, because no `Option` is
    /// involved.
    pub there: Option<Vec<bool>>,
}

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Truth values.
    Booleans(Vec<bool>),
    /// Counts; values beyond the range of `i64` become its maximum.
    Integers(Vec<i64>),
    /// Real numbers, including infinities and NaN.
    Reals(Vec<f64>),
    /// Texts, and names of enum variants.
    Texts(Vec<String>),
}

impl Columns {
    /// Converts rows into columns, one for each field of `T` that serde writes.
    ///
    /// Names and types follow from `T` alone (from its `Deserialize`), so that a table has the same
    /// columns whatever it contains. The names of nested fields are joined with `_`; the elements
    /// of a tuple become adjacent columns. Lists have no columns.
    ///
    /// ```
    /// use forebay_analysis::Columns;
    /// use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Latency { mean: f64 }
    /// #[derive(Serialize, Deserialize)]
    /// struct Run<'a> { trace: &'a str, latency_us: Option<Latency> }
    /// let rows = Columns::from_rows([Run { trace: "a", latency_us: None }]);
    /// let names: Vec<&str> = rows.iter().map(|column| &*column.name).collect();
    /// assert_eq!(names, ["trace", "latency_us_mean"]);
    /// ```
    ///
    /// # Panics
    /// If `T` cannot be a row: it has a flattened field, a map, an enum with data, two columns of
    /// the same name, or a field that serde may skip and that is not an `Option`.
    pub fn from_rows<'de, T: Serialize + Deserialize<'de>>(
        rows: impl IntoIterator<Item = T>,
    ) -> Self {
        let rows: Vec<T> = rows.into_iter().collect();
        let arrays = || {
            let options = TracingOptions::default().enums_without_data_as_strings(true);
            serde_arrow::to_marrow(&Vec::<Field>::from_type::<Item<T>>(options)?, Items(&rows))
        };
        let arrays = arrays().unwrap_or_else(|e| panic!("rows of {}: {e}", type_name::<T>()));
        let mut columns = Self::default();
        arrays.into_iter().for_each(|rows| columns.add(String::new(), rows, None));
        columns
    }

    /// The columns, in the order of the fields.
    pub fn iter(&self) -> impl Iterator<Item = &Column> {
        self.0.iter()
    }

    fn add(&mut self, name: String, array: Array, there: Option<Vec<bool>>) {
        let (values, validity) = match array {
            Array::Boolean(a) => (
                Values::Booleans((0..a.len).map(|at| bits::get(&a.values, at)).collect()),
                a.validity,
            ),
            Array::UInt8(a) => (integers(a.values), a.validity),
            Array::UInt16(a) => (integers(a.values), a.validity),
            Array::UInt32(a) => (integers(a.values), a.validity),
            Array::UInt64(a) => (integers(a.values), a.validity),
            Array::Int64(a) => (integers(a.values), a.validity),
            Array::Float64(a) => (Values::Reals(a.values), a.validity),
            Array::LargeUtf8(a) => (Values::Texts(texts(&a)), a.validity),
            Array::Dictionary(a) => match (*a.keys, *a.values) {
                (Array::UInt32(keys), Array::LargeUtf8(names)) => {
                    let names = texts(&names);
                    let name = |&at: &u32| names.get(at as usize).cloned().unwrap_or_default();
                    (Values::Texts(keys.values.iter().map(name).collect()), keys.validity)
                }
                _ => unreachable!("variant names are text"),
            },
            Array::Struct(a) => {
                let outer = valid(there, a.validity);
                for (field, array) in a.fields {
                    let all = || field.nullable.then(|| vec![true; a.len]);
                    self.add(joined(&name, field.name), array, outer.clone().or_else(all));
                }
                return;
            }
            Array::LargeList(_) => return,
            other => panic!("{name}: no column type for {:?}", other.data_type()),
        };
        let is_new = self.0.iter().all(|column| column.name != name);
        assert!(is_new, "two columns are called {name}");
        self.0.push(Column { name, values, there: valid(there, validity) });
    }
}

/// The name of a field within another. The elements of a tuple are called `0`, `1` and so on; they
/// add no name.
fn joined(outer: &str, name: String) -> String {
    match name.parse::<usize>() {
        Ok(_) => outer.to_owned(),
        Err(_) if outer.is_empty() => name,
        Err(_) => format!("{outer}_{name}"),
    }
}

/// `there`, minus the rows that are null.
fn valid(there: Option<Vec<bool>>, validity: Option<Vec<u8>>) -> Option<Vec<bool>> {
    let valid = |at| validity.as_ref().is_none_or(|bits| bits::get(bits, at));
    Some(there?.into_iter().enumerate().map(|(at, there)| there && valid(at)).collect())
}

fn integers<T: TryInto<i64>>(values: Vec<T>) -> Values {
    let integer = |value: T| value.try_into().unwrap_or(i64::MAX);
    Values::Integers(values.into_iter().map(integer).collect())
}

fn texts(array: &BytesArray<i64>) -> Vec<String> {
    let text = |ends: &[i64]| &array.data[ends[0] as usize..ends[1] as usize];
    let text = |ends: &[i64]| String::from_utf8_lossy(text(ends)).into_owned();
    array.offsets.windows(2).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Size {
        bytes: u64,
    }

    #[test]
    #[should_panic = "two columns are called bytes"]
    fn two_columns_of_one_name_are_refused() {
        Columns::from_rows::<(Size, Size)>([]);
    }

    #[test]
    #[should_panic = "rows of "]
    fn what_is_flattened_is_refused_since_serde_does_not_say_which_fields_it_has() {
        #[derive(Serialize, Deserialize)]
        struct Flattened {
            #[serde(flatten)]
            size: Option<Size>,
        }
        Columns::from_rows::<Flattened>([]);
    }
}
