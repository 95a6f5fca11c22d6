//! Links in the documentation lead somewhere, and every page can be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::Violation;

/// Where readers start.
const ENTRANCES: [&str; 2] = ["README.md", "docs/index.md"];

/// A page: where its links lead, with their lines, and the anchors of its headings.
struct Page {
    links: Vec<(String, usize)>,
    anchors: BTreeSet<String>,
}

/// Reports links to files or headings that do not exist, and pages under `docs/` that cannot be
/// reached from an entrance. `pages` are all Markdown files with their texts; `exists` says
/// whether a path of the repository exists.
pub fn check(pages: &[(PathBuf, String)], exists: &dyn Fn(&Path) -> bool) -> Vec<Violation> {
    let parsed: BTreeMap<&Path, Page> =
        pages.iter().map(|(path, text)| (path.as_path(), parse(text))).collect();
    let mut found = Vec::new();
    let mut arrows: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
    for (path, page) in &parsed {
        for (link, line) in page.links.iter().filter(|(link, _)| is_local(link)) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match target {
                "" => path.to_path_buf(),
                _ => resolve(path, target),
            };
            if !exists(&target) {
                let message = format!("the link `{link}` leads nowhere");
                found.push(Violation::new(path, *line, message));
                continue;
            }
            let page = parsed.get(target.as_path());
            if !anchor.is_empty() && page.is_some_and(|page| !page.anchors.contains(anchor)) {
                let message = format!("`{}` has no heading `#{anchor}`", target.display());
                found.push(Violation::new(path, *line, message));
            }
            arrows.entry(path).or_default().push(target);
        }
    }
    for path in unreachable(&parsed, &arrows) {
        let message = format!("no link leads here from {}", ENTRANCES.join(" or "));
        found.push(Violation::new(path, 0, message));
    }
    found
}

fn unreachable<'a>(
    pages: &BTreeMap<&'a Path, Page>,
    arrows: &BTreeMap<&Path, Vec<PathBuf>>,
) -> Vec<&'a Path> {
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut pending: Vec<PathBuf> = ENTRANCES.iter().map(PathBuf::from).collect();
    while let Some(path) = pending.pop() {
        if reached.insert(path.clone()) {
            pending.extend(arrows.get(path.as_path()).into_iter().flatten().cloned());
        }
    }
    pages.keys().filter(|p| p.starts_with("docs") && !reached.contains(**p)).copied().collect()
}

fn parse(text: &str) -> Page {
    let mut page = Page { links: Vec::new(), anchors: BTreeSet::new() };
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = 1 + text[..range.start].matches('\n').count();
                page.links.push((dest_url.to_string(), line));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                page.anchors.extend(heading.take().map(|text| slug(&text)));
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn is_local(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// The path that `target`, seen from the page `from`, means.
fn resolve(from: &Path, target: &str) -> PathBuf {
    let base = match target.strip_prefix('/') {
        Some(_) => Path::new(""),
        None => from.parent().unwrap_or(Path::new("")),
    };
    let mut path = PathBuf::new();
    for part in base.join(target.trim_start_matches('/')).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: Vec<_> = pages.iter().map(|(p, t)| (PathBuf::from(p), t.to_string())).collect();
        let exists = |path: &Path| {
            path == Path::new("Makefile") || pages.iter().any(|(p, _)| p.as_path() == path)
        };
        check(&pages, &exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_links_pass() {
        let none: [String; 0] = [];
        let readme = "[a](docs/a.md#two-words) [m](Makefile) [w](https://x.y/z) [s](#top)\n# Top";
        let page = "## Two `words`\n[back](../README.md)";
        assert_eq!(found(&[("README.md", readme), ("docs/a.md", page)]), none);
    }

    #[test]
    fn a_planted_dead_link_is_found_with_its_line() {
        let found = found(&[("README.md", "x\n\n[a](docs/none.md)")]);
        assert_eq!(found, ["README.md:3: the link `docs/none.md` leads nowhere"]);
    }

    #[test]
    fn a_planted_dead_anchor_is_found() {
        let found = found(&[("README.md", "[a](docs/a.md#gone)"), ("docs/a.md", "# Here")]);
        assert_eq!(found, ["README.md:1: `docs/a.md` has no heading `#gone`"]);
    }

    #[test]
    fn a_page_that_no_link_leads_to_is_found() {
        let pages = [("README.md", ""), ("docs/a.md", "[b](b.md)"), ("docs/b.md", "[a](a.md)")];
        assert_eq!(found(&pages).len(), 2);
    }
}
