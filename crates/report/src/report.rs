//! Reports and their sections.

use crate::error::ReportError;
use crate::figure::Figure;
use crate::page;
use crate::table::Table;
use std::fs;
use std::path::Path;

/// A report: a title, a subtitle, and sections.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) sections: Vec<Section>,
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }
    /// Sets the line below the title, such as what was measured and when.
    pub fn subtitle(mut self, text: impl Into<String>) -> Self {
        self.subtitle = text.into();
        self
    }
    /// Adds a section.
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The figures, in order.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|s| &s.items).filter_map(|item| match item {
            Item::Figure(figure) => Some(figure),
            _ => None,
        })
    }

    /// Renders the whole page, including the script (about 4.5 MB).
    pub fn to_html(&self) -> String {
        page::render(self)
    }

    /// Writes the page to `path`. The file appears complete or not at all.
    ///
    /// # Errors
    /// If the file cannot be written; an existing file is then unchanged.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        let path = path.as_ref();
        let failed = |source| ReportError::Write { path: path.to_path_buf(), source };
        // A device or a pipe cannot be replaced by renaming.
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return fs::write(path, self.to_html()).map_err(failed);
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".part-{}", std::process::id()));
        let written = fs::write(&part, self.to_html()).and_then(|()| fs::rename(&part, path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.map_err(failed)
    }
}

/// A heading and the items below it, in the order in which they were added.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    pub(crate) heading: String,
    pub(crate) items: Vec<Item>,
}

/// One item of a section.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    Text(String),
    Facts(Vec<(String, String)>),
    Table(Table),
    Figure(Figure),
}

impl Section {
    /// An empty section.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), items: Vec::new() }
    }
    /// Appends a label to the heading, for a page with several sections of the same kind.
    pub fn labelled(mut self, label: &str) -> Self {
        if !label.is_empty() {
            self.heading = format!("{}: {label}", self.heading);
        }
        self
    }
    /// Adds a paragraph.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.items.push(Item::Text(text.into()));
        self
    }
    /// Adds facts: names with short values, side by side.
    pub fn facts<K: Into<String>, V: Into<String>>(
        mut self,
        facts: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let facts = facts.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        self.items.push(Item::Facts(facts));
        self
    }
    /// Adds a table.
    pub fn table(mut self, table: Table) -> Self {
        self.items.push(Item::Table(table));
        self
    }
    /// Adds a figure.
    pub fn figure(mut self, figure: Figure) -> Self {
        self.items.push(Item::Figure(figure));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing").join("x.html");
        let error = Report::new("t").write_html(&path).unwrap_err().to_string();
        assert!(error.contains("missing") && error.contains("cannot write"), "{error}");
    }

    #[test]
    fn writing_leaves_exactly_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.html");
        Report::new("one").write_html(&path).unwrap();
        Report::new("two").write_html(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("<title>two</title>"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
