//! Tables of text and numbers.

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Align {
    /// For text.
    #[default]
    Left,
    /// For numbers.
    Right,
}

/// A table: a heading per column, then rows of text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<(String, Align)>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A table whose columns are added one by one, each with its heading and its cells.
#[derive(Clone, Debug)]
pub struct TableOf<T> {
    items: Vec<T>,
    table: Table,
}

impl<T> TableOf<T> {
    /// Adds a column of text.
    pub fn column(self, heading: impl Into<String>, cell: impl Fn(&T) -> String) -> Self {
        self.add(heading.into(), Align::Left, cell)
    }
    /// Adds a column of numbers.
    pub fn number(self, heading: impl Into<String>, cell: impl Fn(&T) -> String) -> Self {
        self.add(heading.into(), Align::Right, cell)
    }
    /// Adds a column of numbers if `wanted`; otherwise `cell` is not called.
    pub fn number_if(
        self,
        wanted: bool,
        heading: impl Into<String>,
        cell: impl Fn(&T) -> String,
    ) -> Self {
        if wanted { self.number(heading, cell) } else { self }
    }
    /// The table.
    pub fn table(self) -> Table {
        self.table
    }
    /// The table as text: [`Table::to_text`].
    pub fn to_text(&self) -> String {
        self.table.to_text()
    }

    fn add(mut self, heading: String, align: Align, cell: impl Fn(&T) -> String) -> Self {
        self.table.columns.push((heading, align));
        for (row, item) in self.table.rows.iter_mut().zip(&self.items) {
            row.push(cell(item));
        }
        self
    }
}

impl Table {
    /// Creates a table with a row for each item; add its columns afterwards.
    ///
    /// ```
    /// use forebay_report::Table;
    /// let tiers = [("DRAM", 16), ("flash", 512)];
    /// let t = Table::from_items(tiers).column("tier", |t| t.0.into()).number("MiB", |t| t.1.to_string());
    /// assert_eq!(t.to_text(), "tier   MiB\nDRAM    16\nflash  512\n");
    /// ```
    pub fn from_items<T>(items: impl IntoIterator<Item = T>) -> TableOf<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = items.iter().map(|_| Vec::new()).collect();
        TableOf { items, table: Table { rows, ..Table::default() } }
    }
    /// Creates a table without columns.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets a line of text above the table.
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
    /// Adds a row; cells beyond the last column are not shown, and missing cells are empty.
    pub fn row<S: Into<String>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// The table as aligned plain text for a terminal: a line of headings, then one line per row.
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
