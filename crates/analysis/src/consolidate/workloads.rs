//! Assigns each request to a workload.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use forebay_block::Volume;
use forebay_trace::{Metadata, VolumeInfo, is_wanted, stem};

use crate::{AnalysisError, Traces};

/// The unit that counts as a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Each file, with all its volumes.
    File,
    /// Each volume, across all files in which it occurs.
    Volume,
}

/// Volumes that form one workload: `NAME=VOLUME,...`, with names or numbers of volumes
/// ([`is_wanted`]).
///
/// ```
/// use forebay_analysis::consolidate::Group;
/// assert!("web=vm1,vm2".parse::<Group>().is_ok());
/// assert!("web=vm1,,vm2".parse::<Group>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    name: String,
    volumes: Vec<String>,
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(name, volumes)| {
            !name.is_empty() && volumes.split(',').all(|volume| !volume.is_empty())
        });
        let Some((name, volumes)) = parts else {
            return Err(format!("`{text}` is not a group: write NAME=VOLUME,VOLUME"));
        };
        let volumes = volumes.split(',').map(str::to_string).collect();
        Ok(Self { name: name.to_string(), volumes })
    }
}

/// The workloads, numbered in order of appearance.
pub struct Workloads<'a> {
    by: By,
    groups: &'a [Group],
    names: Vec<String>,
    /// The names in use, for fast lookup.
    taken: BTreeSet<String>,
    of_volume: BTreeMap<Volume, usize>,
}

impl<'a> Workloads<'a> {
    /// Files and groups are known before anything is read; volumes are not.
    pub fn new(traces: &Traces, by: By, groups: &'a [Group]) -> Self {
        let mut names: Vec<String> = groups.iter().map(|g| g.name.clone()).collect();
        if by == By::File {
            names = traces.files.iter().map(|path| stem(path)).collect();
        }
        let (taken, of_volume) = (BTreeSet::new(), BTreeMap::new());
        let mut workloads = Self { by, groups, names: Vec::new(), taken, of_volume };
        for name in names {
            workloads.add(name);
        }
        workloads
    }

    /// The index of a volume's workload.
    pub fn workload_of(&mut self, volume: Volume, metadata: &Metadata) -> usize {
        if let Some(&workload) = self.of_volume.get(&volume) {
            return workload;
        }
        let number = volume.0 as usize;
        let unnamed = || VolumeInfo { name: volume.0.to_string(), bytes: None };
        let info = metadata.volumes.get(number).cloned().unwrap_or_else(unnamed);
        let group = self.groups.iter().position(|g| g.has(number, &metadata.volumes));
        let workload = match (self.by, group) {
            // A single trace is not merged, so its metadata does not say which file a volume is
            // from.
            (By::File, _) => metadata.volume_traces.get(number).copied().unwrap_or(0),
            (By::Volume, Some(group)) => group,
            (By::Volume, None) => self.add(info.name),
        };
        self.of_volume.insert(volume, workload);
        workload
    }

    /// The names, all different.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Rejects groups that name a volume which does not exist, and volumes in two groups.
    pub fn check_groups(&self, metadata: &Metadata) -> Result<(), AnalysisError> {
        let known = |wanted: &String| {
            (0..metadata.volumes.len()).any(|n| is_wanted(&metadata.volumes, n, wanted))
        };
        let named = self.groups.iter().flat_map(|g| &g.volumes);
        let Some(missing) = named.into_iter().find(|volume| !known(volume)) else {
            self.check_late_names(metadata)?;
            return self.check_apart(metadata);
        };
        let known = metadata.volumes.iter().map(|v| v.name.clone()).collect();
        Err(AnalysisError::NoGroupVolume { name: missing.clone(), known })
    }

    /// Rejects a volume that was counted in a group by its number before a volume appeared whose
    /// name is that number.
    fn check_late_names(&self, metadata: &Metadata) -> Result<(), AnalysisError> {
        for (number, volume) in metadata.volumes.iter().enumerate() {
            let workload = self.of_volume.get(&Volume(number as u32));
            let group = workload.and_then(|&workload| self.groups.get(workload));
            if group.is_some_and(|group| !group.has(number, &metadata.volumes)) {
                let (name, other) = (number.to_string(), volume.name.clone());
                return Err(AnalysisError::LateName { name, other });
            }
        }
        Ok(())
    }

    /// Rejects a volume that belongs to one group by its name and to another by its number.
    fn check_apart(&self, metadata: &Metadata) -> Result<(), AnalysisError> {
        for (number, volume) in metadata.volumes.iter().enumerate() {
            let mut having = self.groups.iter().filter(|g| g.has(number, &metadata.volumes));
            if let (Some(one), Some(other)) = (having.next(), having.next()) {
                return Err(AnalysisError::InTwoGroups {
                    volume: volume.name.clone(),
                    number,
                    groups: [one.name.clone(), other.name.clone()],
                });
            }
        }
        Ok(())
    }

    fn add(&mut self, name: String) -> usize {
        let numbered = (2..).map(|n| format!("{name}#{n}"));
        let mut unused = std::iter::once(name.clone()).chain(numbered);
        let name = unused.find(|name| !self.taken.contains(name)).unwrap_or(name);
        self.taken.insert(name.clone());
        self.names.push(name);
        self.names.len() - 1
    }
}

/// Rejects two groups of the same name, and a volume that is listed twice.
pub fn check_names(groups: &[Group]) -> Result<(), AnalysisError> {
    let refuse = |what: String| Err(AnalysisError::Groups(what));
    let mut names = BTreeSet::new();
    let mut volumes: BTreeMap<&str, &str> = BTreeMap::new();
    for group in groups {
        let name = group.name.as_str();
        if !names.insert(name) {
            return refuse(format!(
                "group `{name}` is given twice; list all its volumes in one group"
            ));
        }
        for volume in &group.volumes {
            match volumes.insert(volume, name) {
                None => {}
                Some(other) if other == name => {
                    return refuse(format!("group `{name}` lists volume `{volume}` twice"));
                }
                Some(other) => {
                    return refuse(format!("volume `{volume}` is in both `{other}` and `{name}`"));
                }
            }
        }
    }
    Ok(())
}

impl Group {
    fn has(&self, number: usize, volumes: &[VolumeInfo]) -> bool {
        self.volumes.iter().any(|wanted| is_wanted(volumes, number, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_name_and_volumes() {
        let group: Group = "web=vm1,vm2".parse().unwrap();
        let volumes = named(&["vm2", "vm3"]).volumes;
        assert!(group.has(0, &volumes) && !group.has(1, &volumes));
        for text in ["web", "=vm1", "web=", "web=vm1,,vm2"] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }

    fn named(names: &[&str]) -> Metadata {
        let info = |name: &&str| VolumeInfo { name: name.to_string(), bytes: None };
        Metadata { volumes: names.iter().map(info).collect(), ..Metadata::default() }
    }

    /// The workload of each volume, with volumes of these names and numbered in this order.
    fn grouped(names: &[&str], groups: &[&str]) -> Result<Vec<usize>, AnalysisError> {
        let groups: Vec<Group> = groups.iter().map(|text| text.parse().unwrap()).collect();
        let metadata = named(names);
        let mut workloads = Workloads::new(&Traces::default(), By::Volume, &groups);
        let of = |number| workloads.workload_of(Volume(number as u32), &metadata);
        let found = (0..names.len()).map(of).collect();
        workloads.check_groups(&metadata).map(|()| found)
    }

    #[test]
    fn a_volume_whose_name_is_a_number_is_in_a_group_by_its_name_only() {
        // By order of appearance, volume `1` has number 0 and volume `0` has number 1.
        assert_eq!(grouped(&["1", "0", "2"], &["a=1", "b=2"]).unwrap(), [0, 2, 1]);
        assert_eq!(grouped(&["1", "0"], &["a=1", "b=0"]).unwrap(), [0, 1]);
        assert_eq!(grouped(&["10", "20", "0"], &["a=10,0"]).unwrap(), [0, 1, 0]);
        // No volume is called 1, and the volume with number 1 has a name that is a number.
        let missing = grouped(&["7", "8"], &["a=1"]);
        assert!(matches!(missing, Err(AnalysisError::NoGroupVolume { .. })), "{missing:?}");
    }

    #[test]
    fn other_volumes_are_in_a_group_by_name_or_by_number() {
        assert_eq!(grouped(&["x", "y", "z"], &["a=1,z"]).unwrap(), [1, 0, 0]);
        let both = grouped(&["x", "y"], &["a=x", "b=0"]);
        assert!(matches!(both, Err(AnalysisError::InTwoGroups { .. })), "{both:?}");
        // Number 0 is not meant if a volume has the name `0`.
        assert_eq!(grouped(&["x", "0"], &["a=0"]).unwrap(), [1, 0]);
        assert_eq!(grouped(&["x", "0"], &["a=x", "b=0"]).unwrap(), [0, 1]);
    }

    #[test]
    fn a_volume_of_a_group_by_a_number_that_turns_out_to_be_a_name_is_refused() {
        let groups = ["a=0".parse().unwrap()];
        let mut workloads = Workloads::new(&Traces::default(), By::Volume, &groups);
        assert_eq!(workloads.workload_of(Volume(0), &named(&["x"])), 0);
        let late = workloads.check_groups(&named(&["x", "0"]));
        assert!(matches!(late, Err(AnalysisError::LateName { .. })), "{late:?}");
    }

    #[test]
    fn workloads_of_one_name_are_told_apart() {
        let files = ["a/x.csv", "b/x.csv", "y.csv"].map(Into::into).to_vec();
        let traces = Traces { files, ..Traces::default() };
        assert_eq!(Workloads::new(&traces, By::File, &[]).names(), ["x", "x#2", "y"]);
    }
}
