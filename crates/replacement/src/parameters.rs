//! Parameters of policies: the policy declares them, this module checks their values.

use core::fmt;

use crate::policies::Kind;
use crate::policy::About;

/// Maximum number of parameters of a policy.
const PARAMETERS_MAX: usize = 6;

/// A parameter of a policy: a number within a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name, in `snake_case`, the unit last.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: &'static str,
    /// The value if it is not set.
    pub default: u32,
    /// The smallest value.
    pub min: u32,
    /// The largest value.
    pub max: u32,
    /// What it does.
    pub meaning: &'static str,
}

impl Parameter {
    /// The maximum number of nodes that a hand passes before it evicts the one that it has reached.
    ///
    /// Passing 4,096 nodes that are not in the processor's caches takes a third of a millisecond.
    pub(crate) const HAND_STEPS_MAX: Parameter = Parameter {
        name: "hand_steps_max",
        unit: "nodes",
        default: 4096,
        min: 1,
        max: u32::MAX,
        meaning: "maximum number of nodes that an eviction may pass over; the next node is then evicted, even \
                  if it was used recently",
    };
}

/// A policy and the values of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    kind: Kind,
    values: [u32; PARAMETERS_MAX],
}

impl Parameters {
    /// A policy with the default values of its parameters.
    pub const fn new(kind: Kind) -> Parameters {
        let mut values = [0; PARAMETERS_MAX];
        let all = kind.about().parameters;
        assert!(all.len() <= PARAMETERS_MAX, "PARAMETERS_MAX is too small");
        let mut i = 0;
        while i < all.len() {
            values[i] = all[i].default;
            i += 1;
        }
        Parameters { kind, values }
    }

    /// A policy with some of its parameters set, by name.
    ///
    /// # Errors
    /// Returns the first name that cannot be set, with the error of [`set`](Parameters::set).
    pub fn from_names<'a>(
        kind: Kind,
        values: impl IntoIterator<Item = (&'a String, &'a u32)>,
    ) -> Result<Parameters, (&'a str, ParameterError)> {
        let mut parameters = Parameters::new(kind);
        for (name, &value) in values {
            parameters.set(name, value).map_err(|error| (name.as_str(), error))?;
        }
        Ok(parameters)
    }

    /// The policy.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// If the policy has no parameter with this name, or the value is outside its range.
    pub fn set(&mut self, name: &str, value: u32) -> Result<(), ParameterError> {
        let kind = self.kind;
        let Some(index) = self.about().parameters.iter().position(|p| p.name == name) else {
            return Err(ParameterError::Unknown { kind, name: name.to_string() });
        };
        let parameter = self.about().parameters[index];
        if !(parameter.min..=parameter.max).contains(&value) {
            return Err(ParameterError::OutOfRange { kind, parameter, value });
        }
        self.values[index] = value;
        Ok(())
    }

    /// These parameters with one of them set.
    ///
    /// # Errors
    /// As [`set`](Parameters::set).
    pub fn with(mut self, name: &str, value: u32) -> Result<Parameters, ParameterError> {
        self.set(name, value)?;
        Ok(self)
    }

    /// The value of a parameter, if the policy has it.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.iter().find(|(p, _)| p.name == name).map(|(_, value)| value)
    }

    /// All parameters of the policy with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, u32)> + '_ {
        self.about().parameters.iter().zip(self.values)
    }

    /// The value of a parameter that the policy declares.
    pub(crate) fn value(&self, parameter: &Parameter) -> u32 {
        self.get(parameter.name).expect("a policy declares the parameters that it reads")
    }

    fn about(&self) -> &'static About {
        self.kind.about()
    }
}

impl Default for Parameters {
    /// LRU.
    fn default() -> Parameters {
        Parameters::new(Kind::Lru)
    }
}

/// The error for a parameter that cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParameterError {
    /// The policy has no such parameter.
    Unknown {
        /// The policy.
        kind: Kind,
        /// The unknown name.
        name: String,
    },
    /// The value is outside the range.
    OutOfRange {
        /// The policy.
        kind: Kind,
        /// The parameter, with its range.
        parameter: Parameter,
        /// The value.
        value: u32,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Unknown { kind, name } => {
                write!(f, "the policy `{kind}` has no parameter `{name}`: ")?;
                match kind.about().parameters {
                    [] => write!(f, "it has none"),
                    all => {
                        let names: Vec<_> = all.iter().map(|p| p.name).collect();
                        write!(f, "it has {}", names.join(", "))
                    }
                }
            }
            ParameterError::OutOfRange { kind, parameter, value } => {
                let Parameter { name, unit, min, max, .. } = parameter;
                write!(
                    f,
                    "`{name}` of the policy `{kind}` must be from {min} to {max} {unit}, not \
                     {value}"
                )
            }
        }
    }
}

impl std::error::Error for ParameterError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_not_there_or_out_of_range_is_refused_with_what_there_is() {
        let mut sieve = Parameters::new(Kind::Sieve);
        assert_eq!(sieve.set("hand_steps_max", 7), Ok(()));
        assert_eq!(sieve.get("hand_steps_max"), Some(7));
        let error = |r: Result<(), ParameterError>| r.unwrap_err().to_string();
        assert_eq!(
            error(sieve.set("hands", 7)),
            "the policy `sieve` has no parameter `hands`: it has hand_steps_max"
        );
        assert_eq!(
            error(sieve.set("hand_steps_max", 0)),
            "`hand_steps_max` of the policy `sieve` must be from 1 to 4294967295 nodes, not 0"
        );
        assert_eq!(sieve.get("hand_steps_max"), Some(7), "what failed changed nothing");
        assert!(error(Parameters::new(Kind::Lru).set("k", 1)).ends_with("it has none"));
    }

    #[test]
    fn every_parameter_has_a_default_within_its_range_and_a_name_of_its_own() {
        for &kind in Kind::ALL {
            let all = kind.about().parameters;
            for (i, p) in all.iter().enumerate() {
                assert!(p.min <= p.default && p.default <= p.max, "{kind} {p:?}");
                assert!(all[..i].iter().all(|other| other.name != p.name), "{kind} {p:?}");
                assert_eq!(Parameters::new(kind).get(p.name), Some(p.default));
                assert!(!p.meaning.is_empty() && !p.unit.is_empty(), "{kind} {p:?}");
            }
        }
    }
}
