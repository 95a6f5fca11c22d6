//! Every dependency comes under a licence that `deny.toml` lists.

use std::path::Path;

use serde_json::Value;

use crate::Violation;

/// The licences that `deny.toml` allows.
///
/// # Errors
/// If the file is not TOML or has no list `licenses.allow`.
pub fn allowed(deny: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = toml::from_str(deny).map_err(|e| e.to_string())?;
    let list = table.get("licenses").and_then(|t| t.get("allow")).and_then(|l| l.as_array());
    let list = list.ok_or("deny.toml has no licenses.allow")?;
    Ok(list.iter().filter_map(|v| v.as_str()).map(str::to_string).collect())
}

/// Reports packages in the answer of `cargo metadata` whose licence is not allowed.
///
/// # Errors
/// If the answer is not JSON or lists no packages.
pub fn check(metadata: &str, allowed: &[String]) -> Result<Vec<Violation>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|e| e.to_string())?;
    let packages = metadata.get("packages").and_then(Value::as_array).ok_or("no packages")?;
    let mut found = Vec::new();
    for package in packages {
        let text = |key| package.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = refused(text("license"), allowed) {
            let message = format!("{} {}: {why}", text("name"), text("version"));
            found.push(Violation::new(Path::new("Cargo.lock"), 0, message));
        }
    }
    Ok(found)
}

/// Why a package under `licence` is refused, if it is.
fn refused(licence: &str, allowed: &[String]) -> Option<String> {
    // The slash is how crates once wrote "or".
    let licence = licence.replace('/', " OR ");
    let expression = match spdx::Expression::parse(&licence) {
        Ok(expression) => expression,
        Err(_) => return Some(format!("`{licence}` is no licence expression")),
    };
    let good = expression.evaluate(|requirement| allowed.contains(&requirement.to_string()));
    (!good).then(|| format!("the licence `{licence}` is not in deny.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(licence: &str) -> usize {
        let allowed = allowed("[licenses]\nallow = ['MIT', 'Apache-2.0', 'Unicode-3.0']").unwrap();
        let metadata = format!(
            r#"{{"packages": [{{"name": "x", "version": "1.0.0", "license": "{licence}"}}]}}"#
        );
        check(&metadata, &allowed).unwrap().len()
    }

    #[test]
    fn one_of_several_licences_is_enough_and_all_of_them_where_all_hold() {
        for good in ["MIT", "MIT/GPL-3.0-only", "GPL-2.0-only OR MIT", "MIT AND Unicode-3.0"] {
            assert_eq!(found(good), 0, "{good}");
        }
    }

    #[test]
    fn a_planted_licence_is_found() {
        for bad in ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "", "my own"] {
            assert_eq!(found(bad), 1, "{bad}");
        }
    }
}
