//! The page: HTML, style, and the short script that draws the figures.

use crate::figure::Figure;
use crate::report::{Item, Report, Section};
use crate::script::plotly_script;
use crate::table::{Align, Table};
use std::fmt::Write;

/// Prevents the page from fetching anything: it contains all that it needs. Images are allowed,
/// because Plotly creates one when a reader saves a figure.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; img-src data: blob:";

const STYLE: &str = include_str!("page.css");
const DRAW: &str = include_str!("page.js");

/// Renders the whole document.
pub(crate) fn render(report: &Report) -> String {
    let title = escape(&report.title);
    let figures = report.figures().count();
    let script = if figures > 0 { plotly_script() } else { "" };
    let mut html = String::with_capacity(script.len() + 64 * 1024);
    html += "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    html += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    push(
        &mut html,
        format_args!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n"),
    );
    push(&mut html, format_args!("<title>{title}</title>\n<style>\n{STYLE}</style>\n"));
    html += "</head>\n<body>\n<main>\n";
    push(&mut html, format_args!("<header><h1>{title}</h1>"));
    if !report.subtitle.is_empty() {
        push(&mut html, format_args!("<p>{}</p>", escape(&report.subtitle)));
    }
    html += "</header>\n";
    let mut next_figure = 0;
    for section in &report.sections {
        render_section(&mut html, section, &mut next_figure);
    }
    html += "</main>\n";
    if figures > 0 {
        push(&mut html, format_args!("<script>{script}</script>\n<script>{DRAW}</script>\n"));
    }
    html += "</body>\n</html>\n";
    html
}

fn render_section(html: &mut String, section: &Section, next_figure: &mut usize) {
    push(html, format_args!("<section>\n<h2>{}</h2>\n", escape(&section.heading)));
    for item in &section.items {
        match item {
            Item::Text(text) => push(html, format_args!("<p>{}</p>\n", escape(text))),
            Item::Facts(facts) => {
                *html += "<dl class=\"facts\">\n";
                for (name, value) in facts {
                    let (name, value) = (escape(name), escape(value));
                    push(html, format_args!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
                }
                *html += "</dl>\n";
            }
            Item::Table(table) => render_table(html, table),
            Item::Figure(figure) => {
                render_figure(html, figure, *next_figure);
                *next_figure += 1;
            }
        }
    }
    *html += "</section>\n";
}

fn render_table(html: &mut String, table: &Table) {
    *html += "<div class=\"scroll\"><table>\n";
    if !table.caption.is_empty() {
        push(html, format_args!("<caption>{}</caption>\n", escape(&table.caption)));
    }
    let class = |align: Align| if align == Align::Right { " class=\"n\"" } else { "" };
    *html += "<thead><tr>";
    for (heading, align) in &table.columns {
        push(html, format_args!("<th scope=\"col\"{}>{}</th>", class(*align), escape(heading)));
    }
    *html += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        *html += "<tr>";
        for (at, (_, align)) in table.columns.iter().enumerate() {
            let cell = row.get(at).map(String::as_str).unwrap_or_default();
            push(html, format_args!("<td{}>{}</td>", class(*align), escape(cell)));
        }
        *html += "</tr>\n";
    }
    *html += "</tbody>\n</table></div>\n";
}

fn render_figure(html: &mut String, figure: &Figure, number: usize) {
    let height = figure.json["layout"]["height"].as_u64().unwrap_or(400);
    let title = escape(&figure.title);
    push(html, format_args!("<figure>\n<h3>{title}</h3>\n"));
    push(
        html,
        format_args!(
            "<div class=\"plot\" id=\"figure-{number}\" style=\"height:{height}px\" role=\"img\" \
             aria-label=\"{title}\"></div>\n"
        ),
    );
    if !figure.caption.is_empty() {
        push(html, format_args!("<figcaption>{}</figcaption>\n", escape(&figure.caption)));
    }
    // In JSON inside a script element, `<` could end the element, so it is escaped.
    let json = figure.json.to_string().replace('<', "\\u003c");
    push(
        html,
        format_args!(
            "<script type=\"application/json\" data-figure=\"figure-{number}\">{json}</script>\n"
        ),
    );
    *html += "</figure>\n";
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

fn push(html: &mut String, args: std::fmt::Arguments<'_>) {
    html.write_fmt(args).expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Lines, Unit};

    fn report(text: &str) -> String {
        let figure = Lines::new(text)
            .x(Axis::new(text, Unit::Bytes))
            .line(text, [1.0], [2.0])
            .figure()
            .caption(text);
        let table = Table::new().caption(text).column(text).row([text]);
        let section =
            Section::new(text).text(text).facts([(text, text)]).table(table).figure(figure.clone());
        Report::new(text).subtitle(text).section(section.figure(figure)).to_html()
    }

    /// The page without the two large scripts: Plotly's and the one that draws the figures.
    fn without_scripts(html: &str) -> String {
        html.replace(plotly_script(), "").replace(DRAW, "")
    }

    #[test]
    fn hostile_text_stays_text_everywhere() {
        let page = without_scripts(&report("</script><img src=x onerror=alert(1)>\"'&"));
        assert!(!page.contains("<img"));
        assert!(page.contains(
            "aria-label=\"&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;\""
        ));
        assert_eq!(page.matches("</script>").count(), 4, "two figures, two scripts");
    }

    #[test]
    fn the_script_is_embedded_once_and_nothing_is_fetched() {
        let html = report("plain");
        assert_eq!(html.matches("plotly.js v").count(), 1);
        assert!(html.contains("default-src 'none'"));
        let page = without_scripts(&html);
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
        for address in ["//cdn.", "jsdelivr", "cartocdn", "unpkg.com"] {
            assert!(!html.contains(address), "{address} is left");
        }
    }

    #[test]
    fn a_report_without_figures_carries_no_script() {
        let html = Report::new("t").section(Section::new("s").text("x")).to_html();
        assert!(html.len() < 16 * 1024 && !html.contains("<script"));
    }

    /// The values of `property` in the rules that apply to `selector`.
    fn rule(style: &str, selector: &str, property: &str) -> Vec<String> {
        let bodies = style.split('}').filter_map(|rule| {
            rule.rsplit_once('{').map(|(selectors, body)| {
                let selectors = selectors.rsplit(['{', ';']).next().unwrap_or_default();
                (selectors.split(',').any(|s| s.trim() == selector), body)
            })
        });
        let declared = bodies.filter(|(is_it, _)| *is_it).flat_map(|(_, body)| body.split(';'));
        let values = declared.filter_map(|d| d.split_once(':'));
        values.filter(|(name, _)| name.trim() == property).map(|(_, v)| v.trim().into()).collect()
    }

    #[test]
    fn no_table_is_cut_off() {
        let (screen, print) = STYLE.split_once("@media print").unwrap();
        // The page is as wide as the window, up to a limit that fits a plan's table of a dozen
        // columns; headings wrap, and wider content gets a scroll bar.
        assert_eq!(rule(screen, "main", "max-width"), ["min(110rem, 96vw)"]);
        assert_eq!(rule(screen, "th", "white-space").last().unwrap(), "normal");
        assert_eq!(rule(screen, ".scroll", "overflow-x"), ["auto"]);
        // Printed pages have no scroll bars.
        assert_eq!(rule(print, ".scroll", "overflow-x"), ["visible"]);
        assert_eq!(rule(print, "td", "white-space"), ["normal"]);
        assert_eq!(rule(print, "main", "max-width"), ["none"]);
        for value in ["hidden", "clip"] {
            assert!(!STYLE.contains(value), "{value}");
        }
        // Every table is inside an element that scrolls.
        let wide = (0..14).fold(Table::new(), |table, n| table.column(format!("column {n}")));
        let section = Section::new("s").table(wide.clone()).table(wide);
        let html = Report::new("t").section(section).to_html();
        assert_eq!(html.matches("<table").count(), 2);
        assert_eq!(html.matches("<div class=\"scroll\"><table").count(), 2);
    }
}
