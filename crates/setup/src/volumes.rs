//! Decides which configured volume stands for each volume of a workload.

/// What decides where a volume of a workload goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkloadVolume<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// Whether there are requests for it. If only some volumes of a trace are chosen, the others
    /// still have numbers.
    pub used: bool,
}

/// A workload has more volumes than there are targets for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyVolumes {
    /// Volumes with requests.
    pub volumes: usize,
    /// Targets.
    pub targets: usize,
}

/// Assigns each volume of a workload to one of the targets with these names, which are the volumes
/// of a configuration or of another target of requests; a volume without requests gets `None`.
///
/// If every volume with requests has a target of the same name, it goes there. Otherwise the first
/// volume goes to the first target, and so on. If there are at least as many targets as volumes,
/// all volumes are counted, with or without requests; if not, only those with requests.
///
/// A replay and a simulation number volumes by this function. The number of a volume influences
/// where its blocks are placed, so they would otherwise disagree.
///
/// ```
/// use forebay_setup::{WorkloadVolume, volume_targets};
/// let volumes = [("a", false), ("b", true)].map(|(name, used)| WorkloadVolume { name, used });
/// assert_eq!(volume_targets(&volumes, &["x"]), Ok(vec![None, Some(0)]));
/// assert_eq!(volume_targets(&volumes, &["x", "y"]), Ok(vec![None, Some(1)]));
/// assert_eq!(volume_targets(&volumes, &["b", "a"]), Ok(vec![None, Some(0)]));
/// ```
///
/// # Errors
/// If there are too few targets.
pub fn volume_targets(
    volumes: &[WorkloadVolume<'_>],
    names: &[&str],
) -> Result<Vec<Option<usize>>, TooManyVolumes> {
    let used = || volumes.iter().enumerate().filter(|(_, volume)| volume.used);
    let named = |v: &WorkloadVolume<'_>| {
        names.iter().position(|&name| name == v.name && !v.name.is_empty())
    };
    let all_named = used().all(|(_, volume)| named(volume).is_some());
    let each_has_one = volumes.len() <= names.len();
    let (count, targets) = (used().count(), names.len());
    if !all_named && count > targets {
        return Err(TooManyVolumes { volumes: count, targets });
    }
    let mut numbers = vec![None; volumes.len()];
    for (among_used, (among_all, volume)) in used().enumerate() {
        let number = if each_has_one { among_all } else { among_used };
        numbers[among_all] = if all_named { named(volume) } else { Some(number) };
    }
    Ok(numbers)
}
