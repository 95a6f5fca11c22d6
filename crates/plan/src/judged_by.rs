//! How the value of a choice is judged.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the value of a choice is judged.
///
/// ```
/// use forebay_plan::JudgedBy;
/// assert_eq!("simulate".parse(), Ok(JudgedBy::Simulate));
/// assert_eq!(JudgedBy::Replay.to_string(), "replay");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JudgedBy {
    /// By formula, from the miss-ratio curves and the latencies of the devices.
    #[default]
    Analytic,
    /// By simulating the cache.
    Simulate,
    /// By replaying the traces on real files and devices.
    Replay,
}

/// A name that is not one of [`JudgedBy`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a way to evaluate choices; write analytic, simulate or replay")]
pub struct UnknownJudge(String);

impl JudgedBy {
    /// The name as written in results and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Analytic => "analytic",
            Self::Simulate => "simulate",
            Self::Replay => "replay",
        }
    }
}

impl fmt::Display for JudgedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for JudgedBy {
    type Err = UnknownJudge;

    fn from_str(text: &str) -> Result<Self, UnknownJudge> {
        let all = [Self::Analytic, Self::Simulate, Self::Replay];
        let known = all.into_iter().find(|judge| judge.name() == text);
        known.ok_or_else(|| UnknownJudge(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_command_lines_use_the_same_names() {
        for judge in [JudgedBy::Analytic, JudgedBy::Simulate, JudgedBy::Replay] {
            assert_eq!(judge.name().parse(), Ok(judge));
            assert_eq!(serde_json::to_value(judge).unwrap(), judge.name());
        }
        let error = "guess".parse::<JudgedBy>().unwrap_err();
        assert!(error.to_string().contains("`guess`"), "{error}");
    }
}
