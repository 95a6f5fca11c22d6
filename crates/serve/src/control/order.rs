//! Parses the parameters of an order from its query string. Nothing is executed here.

use std::borrow::Cow;
use std::time::Duration;

use forebay_config::{Acknowledge, WritePolicy};
use forebay_engine::StopMode;
use percent_encoding::percent_decode_str;

use super::http::Answer;

/// Default limit on the duration of a quiesce.
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
    let policy = policy.ok_or_else(|| Answer::error(400, "set the parameter `write_policy`"))?;
    if let Some(why) = policy.refuses_acknowledge().filter(|_| acknowledge.is_some()) {
        let next = "the write policy is unchanged. Omit `acknowledge`, or use \"write-back\"";
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

/// The limit of `/quiesce`: `for=SECONDS`, where 0 means no limit (`None`); [`QUIESCE_LIMIT`] by
/// default.
pub(super) fn quiesce(query: &str) -> Result<Option<Duration>, Answer> {
    match pairs(query).collect::<Vec<_>>()[..] {
        [] => Ok(Some(QUIESCE_LIMIT)),
        [("for", seconds)] => match seconds.parse::<f64>().map(Duration::try_from_secs_f64) {
            // Less than a nanosecond is rounded to zero, but must not mean a quiesce without a
            // limit.
            Ok(Ok(limit)) if limit.is_zero() && seconds.parse() != Ok(0.0) => {
                Ok(Some(Duration::from_nanos(1)))
            }
            Ok(Ok(limit)) => Ok(Some(limit).filter(|limit| !limit.is_zero())),
            _ => Err(Answer::error(400, "`for` must be a number of seconds")),
        },
        _ => Err(Answer::error(400, "/quiesce takes only the parameter `for`")),
    }
}

/// What `/stop` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct StopOrder {
    /// What to do with dirty data, if the order says.
    pub dirty: Option<StopMode>,
    /// Whether to answer only after the server has stopped.
    pub waits: bool,
}

/// The order of `/stop`: `dirty=keep|destage|release&wait=0|1`; both may be left out.
pub(super) fn stop(query: &str) -> Result<StopOrder, Answer> {
    let mut order = StopOrder::default();
    for pair in pairs(query) {
        match pair {
            ("dirty", "keep") => order.dirty = Some(StopMode::Keep),
            ("dirty", "destage") => order.dirty = Some(StopMode::Destage),
            ("dirty", "release") => order.dirty = Some(StopMode::Release),
            ("wait", "0") => order.waits = false,
            ("wait", "1") => order.waits = true,
            ("dirty", _) => {
                return Err(Answer::error(400, "`dirty` must be keep, destage or release"));
            }
            ("wait", _) => return Err(Answer::error(400, "`wait` must be 0 or 1")),
            (key, _) => {
                let text = format!(
                    "/stop has no parameter `{key}`; its parameters are `dirty` and `wait`"
                );
                return Err(Answer::error(400, &text));
            }
        }
    }
    Ok(order)
}

/// The name of the volume of `/invalidate`: `volume=NAME`.
pub(super) fn invalidate(query: &str) -> Result<Cow<'_, str>, Answer> {
    let [("volume", name)] = pairs(query).collect::<Vec<_>>()[..] else {
        return Err(Answer::error(
            400,
            "name the volume in the parameter `volume`, and set no other parameter",
        ));
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
    fn a_stop_with_a_parameter_that_it_does_not_have_is_refused() {
        for query in ["dirty=kept", "drity=keep", "dirty", "wait=yes", "wait=1&force=1", "keep"] {
            assert_eq!(stop(query).unwrap_err().code, 400, "{query}");
        }
        let order = |dirty, waits| StopOrder { dirty, waits };
        assert_eq!(stop("").unwrap(), order(None, false));
        assert_eq!(stop("wait=1&dirty=keep").unwrap(), order(Some(StopMode::Keep), true));
        assert_eq!(stop("dirty=release&wait=0").unwrap(), order(Some(StopMode::Release), false));
    }

    #[test]
    fn only_zero_means_a_quiesce_without_a_limit() {
        assert_eq!(quiesce("for=0").unwrap(), None);
        assert_eq!(quiesce("for=-0.0").unwrap(), None);
        assert_eq!(quiesce("for=1e-10").unwrap(), Some(Duration::from_nanos(1)));
        assert_eq!(quiesce("for=1.5").unwrap(), Some(Duration::from_millis(1500)));
        assert_eq!(quiesce("").unwrap(), Some(QUIESCE_LIMIT));
        assert!(quiesce("for=-1").is_err() && quiesce("for=nan").is_err());
    }

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
