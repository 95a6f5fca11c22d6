//! The pages of the documentation, and the tables in them.

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- fields: ";
const END: &str = "<!-- end of fields -->";

/// A page in `docs/`.
pub struct Page {
    /// Name of the file.
    pub file: String,
    /// The whole text.
    pub text: String,
}

/// The location of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the page's file.
    pub file: String,
    /// The nearest heading above the table, without markup.
    pub title: String,
}

/// The pages of the documentation.
pub struct Pages(Vec<Page>);

impl Pages {
    /// Reads the pages in `docs/`.
    pub fn read() -> Self {
        let directory = std::fs::read_dir(docs()).unwrap();
        let files = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter(|file| file.ends_with(".md")).collect();
        files.sort();
        let page = |file: String| {
            let text = std::fs::read_to_string(docs().join(&file)).unwrap();
            Page { file, text }
        };
        Self(files.into_iter().map(page).collect())
    }

    /// A set of these pages.
    pub fn new(pages: Vec<Page>) -> Self {
        Self(pages)
    }

    /// Iterates over the pages in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Page> {
        self.0.iter()
    }

    /// The location of a table, by name.
    ///
    /// # Panics
    /// If several pages or places have a table of this name.
    pub fn place(&self, name: &str) -> Option<Place> {
        let mut places = self.0.iter().flat_map(|page| page.places(name));
        let place = places.next();
        assert_eq!(places.next(), None, "`{name}` has several tables");
        place
    }
}

impl Page {
    /// A page with the given text.
    pub fn new(file: &str, text: &str) -> Self {
        Self { file: file.to_owned(), text: text.to_owned() }
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        docs().join(&self.file)
    }

    fn places(&self, name: &str) -> Vec<Place> {
        let (mut title, mut places) = (String::new(), Vec::new());
        for line in self.text.lines() {
            if let Some(heading) = line.trim_start_matches('#').strip_prefix(' ')
                && line.starts_with('#')
            {
                title = heading.replace(['`', '*'], "");
            }
            if table_name(line) == Some(name) {
                places.push(Place { file: self.file.clone(), title: title.clone() });
            }
        }
        places
    }

    /// The text of the page, with each table replaced by the output of `table`.
    ///
    /// # Panics
    /// If a table has no end marker.
    pub fn with_tables(&self, table: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            text.push_str(line);
            text.push('\n');
            if let Some(name) = table_name(line) {
                let end = lines.find(|line| *line == END);
                assert!(end.is_some(), "docs/{}: `{line}` has no `{END}`", self.file);
                text.push_str(&format!("\n{}\n{END}\n", table(name)));
            }
        }
        text
    }
}

impl Place {
    /// A link to the table from the page `from`; the link text is the title.
    pub fn link(&self, from: &str) -> String {
        let anchor: String = self
            .title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let file = if self.file == from { "" } else { &self.file };
        format!("[{}]({file}#{anchor})", self.title)
    }
}

/// The name of the table, if the line begins one.
fn table_name(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(" -->")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}
