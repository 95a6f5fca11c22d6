//! Tables of text and numbers.

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Align {
    /// Text: flush left.
    #[default]
    Left,
    /// Numbers: flush right.
    Right,
}

/// A table: a heading per column, then rows of text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<(String, Align)>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }
    /// With a line of text above.
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }
    /// Adds a column of text.
    pub fn column(mut self, heading: impl Into<String>) -> Self {
        self.columns.push((heading.into(), Align::Left));
        self
    }
    /// Adds a column of numbers.
    pub fn number(mut self, heading: impl Into<String>) -> Self {
        self.columns.push((heading.into(), Align::Right));
        self
    }
    /// Adds a row; cells beyond the last column are not shown, missing ones are empty.
    pub fn row<S: Into<String>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// The table as aligned plain text, for a terminal: a line of headings, then one per row.
    ///
    /// ```
    /// use forebay_report::Table;
    /// let t = Table::new().column("tier").number("size").row(["DRAM", "16 MiB"]);
    /// assert_eq!(t.to_text(), "tier    size\nDRAM  16 MiB\n");
    /// ```
    pub fn to_text(&self) -> String {
        let cell = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        let headings: Vec<String> = self.columns.iter().map(|c| c.0.clone()).collect();
        let lines: Vec<&[String]> = std::iter::once(headings.as_slice())
            .chain(self.rows.iter().map(Vec::as_slice))
            .collect();
        let width =
            |at: usize| lines.iter().map(|l| cell(l, at).chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let mut out = String::new();
            for (at, &width) in widths.iter().enumerate() {
                let value = cell(line, at);
                out += match self.columns[at].1 {
                    Align::Left => format!("{value:<width$}"),
                    Align::Right => format!("{value:>width$}"),
                }
                .as_str();
                out += "  ";
            }
            text += out.trim_end();
            text.push('\n');
        }
        text
    }
}
