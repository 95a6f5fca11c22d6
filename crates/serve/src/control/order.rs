//! Parses the parameters of an order from the query of its address. Nothing is executed here.

use std::borrow::Cow;
use std::time::Duration;

use forebay_config::{Acknowledge, WritePolicy};
use percent_encoding::percent_decode_str;

use super::http::Answer;

/// How long a quiesce lasts at most, unless it is said.
const QUIESCE_LIMIT: Duration = Duration::from_secs(600);

/// The settings of `/set`: `write_policy=NAME&acknowledge=flash|dram`; the second may be left out.
pub(super) fn set(query: &str) -> Result<(WritePolicy, Option<Acknowledge>), Answer> {
    let (mut policy, mut acknowledge) = (None, None);
    for (key, value) in pairs(query) {
        let unknown = |what: &str| Answer::error(400, &format!("there is no {what} `{value}`"));
        match key {
            "write_policy" => {
                let known = value.parse::<WritePolicy>();
                policy = Some(known.map_err(|_| unknown("write policy"))?);
            }
            "acknowledge" => {
                acknowledge = Some(value.parse().map_err(|_| unknown("acknowledgement"))?);
            }
            _ => {
                let what = "cannot be set while the server runs; only write_policy and acknowledge \
                            can";
                return Err(Answer::error(400, &format!("`{key}` {what}")));
            }
        }
    }
    let policy = policy.ok_or_else(|| Answer::error(400, "name the write_policy to set"))?;
    if let Some(why) = policy.refuses_acknowledge().filter(|_| acknowledge.is_some()) {
        let next =
            "the write policy is unchanged. Leave out the acknowledgement, or use \"write-back\"";
        return Err(Answer::error(400, &format!("acknowledge {why}; {next}")));
    }
    Ok((policy, acknowledge))
}

/// The bytes of `/resize`: `dram=BYTES`.
pub(super) fn resize(query: &str) -> Result<u64, Answer> {
    match pairs(query).collect::<Vec<_>>()[..] {
        [("dram", bytes)] => {
            bytes.parse().map_err(|_| Answer::error(400, "`dram` must be a number of bytes"))
        }
        _ => Err(Answer::error(400, "only `dram` can be resized while the server runs")),
    }
}

/// How long `/quiesce` holds clients back: `for=SECONDS`, 0 (`None`) for as long as it takes.
pub(super) fn quiesce(query: &str) -> Result<Option<Duration>, Answer> {
    match pairs(query).collect::<Vec<_>>()[..] {
        [] => Ok(Some(QUIESCE_LIMIT)),
        [("for", seconds)] => match seconds.parse::<f64>().map(Duration::try_from_secs_f64) {
            Ok(Ok(limit)) => Ok(Some(limit).filter(|limit| !limit.is_zero())),
            _ => Err(Answer::error(400, "`for` must be a number of seconds")),
        },
        _ => Err(Answer::error(400, "a quiesce takes only the key `for`")),
    }
}

/// The name of the volume of `/invalidate`: `volume=NAME`.
pub(super) fn invalidate(query: &str) -> Result<Cow<'_, str>, Answer> {
    let [("volume", name)] = pairs(query).collect::<Vec<_>>()[..] else {
        return Err(Answer::error(400, "name the volume"));
    };
    let name = percent_decode_str(name).decode_utf8();
    name.map_err(|_| Answer::error(400, "the name of the volume is not UTF-8"))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_without_effect_is_refused_as_in_the_file() {
        let file = "[cache]\nwrite_policy = 'write-through'\nacknowledge = 'dram'\n";
        let file = forebay_config::Config::from_toml(file).unwrap_err().to_string();
        let refused = set("write_policy=write-through&acknowledge=dram").unwrap_err();
        let said = refused.body;
        let words = "has no effect with write_policy = \"write-through\"";
        assert!(file.contains(words), "{file}");
        assert!(said.contains(&words.replace('"', "\\\"")), "{said}");
        for query in ["write_policy=write-only&acknowledge=dram", "write_policy=write-through"] {
            assert!(set(query).is_ok(), "{query}");
        }
    }
}
