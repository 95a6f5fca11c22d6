//! The Plotly script, cut out of the `plotly` crate and cleared of addresses.

use std::sync::OnceLock;

/// Addresses inside the Plotly script from which it would load maps. No chart of ours has a map,
/// so they are overwritten: a report names no foreign server that it could call.
const MAP_SERVERS: [&str; 6] = [
    "https://cdn.plot.ly/",
    "https://basemaps.cartocdn.com/",
    "https://tiles.basemaps.cartocdn.com/",
    "https://unpkg.com/",
    "https://cartodb-basemaps-c.global.ssl.fastly.net/",
    "https://fonts.openmaptiles.org/",
];

/// The Plotly script (about 4.5 MB, MIT licence), to be put inside a `<script>` element. Pages
/// other than reports, such as the dashboard, use it too, so that there is one chart library.
pub fn plotly_script() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        // The crate gives script elements: Plotly's first, then MathJax's, which we have no use
        // for. Plotly's own text contains no end tag.
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
