//! The numbers that the volumes of a trace have in a simulated cache.

use forebay_block::{Request, Volume};
use forebay_cache::VOLUMES_MAX;
use forebay_config::Config;
use forebay_setup::{WorkloadVolume, volume_targets};
use forebay_simulate::TracedVolume;

/// The numbers of a trace's volumes in a simulated cache: those that a replay on the configured
/// volumes gives them, because the number of a volume influences where its blocks are placed.
/// Volumes without requests have none, so they do not count towards the limit of a cache.
#[derive(Clone, Debug)]
pub(crate) struct Numbering {
    /// By number in the trace.
    numbers: Vec<Option<u32>>,
    /// By number in the cache. Those that no volume of the trace uses are configured ones.
    pub volumes: Vec<TracedVolume>,
}

impl Numbering {
    /// Numbers the volumes of a trace, given with whether there are requests for each.
    pub fn new(config: &Config, traced: Vec<(TracedVolume, bool)>) -> Numbering {
        let named: Vec<_> = traced
            .iter()
            .map(|(volume, used)| WorkloadVolume { name: &volume.name, used: *used })
            .collect();
        let names: Vec<&str> = config.volume.iter().map(|volume| volume.name.as_str()).collect();
        let targets = volume_targets(&named, &names).unwrap_or_else(|_| {
            // A replay is not possible. The volumes with requests are numbered in order.
            let mut next = 0..;
            traced.iter().map(|(_, used)| used.then(|| next.next()).flatten()).collect()
        });
        let numbers = targets.iter().map(|target| target.map(|number| number as u32)).collect();
        let count = targets.iter().flatten().map(|&last| last + 1).max().unwrap_or(0);
        let unused = |number: usize| TracedVolume {
            name: config.volume.get(number).map(|v| v.name.clone()).unwrap_or_default(),
            bytes: 0,
        };
        let mut volumes: Vec<TracedVolume> = (0..count).map(unused).collect();
        for ((volume, _), target) in traced.into_iter().zip(targets) {
            if let Some(target) = target {
                let bytes = volumes[target].bytes.max(volume.bytes);
                volumes[target] = TracedVolume { bytes, ..volume };
            }
        }
        Numbering { numbers, volumes }
    }

    /// Whether the numbers of these volumes of a trace are the same, whichever of them have requests.
    pub fn is_known(config: &Config, names: &[&str]) -> bool {
        if config.volume.is_empty() {
            return names.len() <= VOLUMES_MAX;
        }
        let named = names.iter().filter(|name| config.volume.iter().any(|v| v.name == **name));
        names.len() <= config.volume.len() && [0, names.len()].contains(&named.count())
    }

    /// The request, for the cache's volume.
    pub fn renumber(&self, request: Request) -> Request {
        let number = self.numbers.get(request.volume.0 as usize).copied().flatten();
        // A trace that changes while it is read can have more volumes: the simulation rejects them.
        Request { volume: Volume(number.unwrap_or(u32::MAX)), ..request }
    }

    /// Whether a volume of the trace has this number.
    pub fn has(&self, number: usize) -> bool {
        self.numbers.contains(&Some(number as u32))
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Flags, Nanos, Op};

    use super::*;

    fn traced(names: &[(&str, bool)]) -> Vec<(TracedVolume, bool)> {
        let volume = |name: &str| TracedVolume { name: name.into(), bytes: 4096 };
        names.iter().map(|&(name, used)| (volume(name), used)).collect()
    }

    fn config(names: &[&str]) -> Config {
        let volume = |name| format!("[[volume]]\nname = '{name}'\nbacking = '/none/{name}'\n");
        Config::from_toml(&names.iter().map(volume).collect::<String>()).unwrap()
    }

    fn names(numbering: &Numbering) -> Vec<&str> {
        numbering.volumes.iter().map(|v| v.name.as_str()).collect()
    }

    #[test]
    fn volumes_without_requests_have_no_number() {
        let many: Vec<String> = (0..100).map(|n| format!("v{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), name == "v70")).collect();
        let numbering = Numbering::new(&Config::default(), traced(&many));
        assert_eq!(names(&numbering), ["v70"]);
        let (time, flags) = (Nanos(0), Flags::NONE);
        let request =
            Request { time, volume: Volume(70), op: Op::Read, flags, offset: 0, length: 1 };
        assert_eq!(numbering.renumber(request).volume, Volume(0));
    }

    #[test]
    fn volumes_have_the_numbers_of_the_configured_ones_on_which_a_replay_puts_them() {
        let selected = [("a", false), ("b", true)];
        let numbering = Numbering::new(&config(&["x", "y", "z"]), traced(&selected));
        assert_eq!(names(&numbering), ["x", "b"], "in order");
        assert!(numbering.has(1) && !numbering.has(0));
        let numbering = Numbering::new(&config(&["x", "b"]), traced(&selected));
        assert_eq!(names(&numbering), ["x", "b"], "by name");
        let numbering = Numbering::new(&config(&["b"]), traced(&selected));
        assert_eq!(names(&numbering), ["b"]);
    }

    #[test]
    fn without_enough_configured_volumes_those_with_requests_are_numbered_in_order() {
        let numbering =
            Numbering::new(&config(&["x"]), traced(&[("a", true), ("b", false), ("c", true)]));
        assert_eq!(names(&numbering), ["a", "c"]);
    }
}
