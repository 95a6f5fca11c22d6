//! The Plotly script, extracted from the `plotly` crate, with server addresses removed.

use std::sync::OnceLock;

/// Addresses in the Plotly script from which it would load maps. Forebay's charts contain no maps,
/// so the addresses are overwritten: a report then names no external server.
const MAP_SERVERS: [&str; 6] = [
    "https://cdn.plot.ly/",
    "https://basemaps.cartocdn.com/",
    "https://tiles.basemaps.cartocdn.com/",
    "https://unpkg.com/",
    "https://cartodb-basemaps-c.global.ssl.fastly.net/",
    "https://fonts.openmaptiles.org/",
];

/// The Plotly script (about 4.5 MB, MIT licence), to be embedded in a `<script>` element. Other
/// pages, such as the dashboard, use it too, so that there is only one chart library.
pub fn plotly_script() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        // The crate returns script elements: first Plotly's, then MathJax's, which is not needed.
        // The text of Plotly contains no end tag.
        let elements = plotly::Plot::offline_js_sources();
        let first = elements.split("</script>").next().unwrap_or_default();
        let mut script = first.split_once('>').map_or(first, |(_, text)| text).to_string();
        for server in MAP_SERVERS {
            script = script.replace(server, "about:blank#");
        }
        script
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_plotly_alone_and_names_no_content_network() {
        let script = plotly_script();
        assert!(script.contains("plotly.js v"));
        assert!(script.contains("Plotly"));
        assert!(!script.contains("</script"));
        assert!(script.len() < 5_500_000, "MathJax, which no chart needs, is 2 MB more");
        for address in ["//cdn.", "cartocdn", "unpkg.com", "jsdelivr", "cloudflare", "fastly"] {
            assert!(!script.contains(address), "{address} is left");
        }
    }
}
