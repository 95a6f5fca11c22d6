//! An answer's raw rows, column by column.

/// A table in memory; all columns are equally long. Units stand in the names: `_us`, `_bytes`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns {
    columns: Vec<(&'static str, Values)>,
}

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Counts; those beyond `i64` are its largest value.
    Integers(Vec<i64>),
    /// Real numbers.
    Reals(Vec<f64>),
    /// Real numbers, `None` where there is none.
    OptionalReals(Vec<Option<f64>>),
    /// Texts.
    Texts(Vec<String>),
}

impl Columns {
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
        self.columns.push((name, Values::Texts(values.map(str::to_owned).collect())));
        self
    }

    /// Names and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Values)> {
        self.columns.iter().map(|(name, values)| (*name, values))
    }
}
