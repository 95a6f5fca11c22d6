//! Finds the volumes that users select by names and numbers.
//!
//! Names take precedence: a number means the volume with that number only if no volume has it as
//! its name. A volume whose name is a number can be selected only by its name.

use crate::{Batch, Counters, Metadata, Progress, Result, TraceError, TraceReader, VolumeInfo};

/// Whether `wanted` selects the volume with this `number` among all `volumes`.
///
/// ```
/// # use forebay_trace::{VolumeInfo, is_wanted};
/// let named = |names: &[&str]| -> Vec<_> {
///     names.iter().map(|name| VolumeInfo { name: name.to_string(), bytes: None }).collect()
/// };
/// let volumes = named(&["db", "web"]);
/// assert!(is_wanted(&volumes, 1, "web") && is_wanted(&volumes, 1, "1"));
/// // The volume that is called 0 is meant, not the one with the number 0.
/// let volumes = named(&["db", "0"]);
/// assert!(is_wanted(&volumes, 1, "0") && !is_wanted(&volumes, 0, "0"));
/// let volumes = named(&["8", "7"]);
/// assert!(is_wanted(&volumes, 1, "7") && !is_wanted(&volumes, 1, "1"));
/// ```
pub fn is_wanted(volumes: &[VolumeInfo], number: usize, wanted: &str) -> bool {
    match volumes.get(number) {
        None => false,
        Some(volume) if volume.name == wanted => true,
        Some(_) => numbered(volumes, wanted) == Some(number) && named(volumes, wanted).is_none(),
    }
}

/// Names among `wanted` that are also the number of another volume.
pub fn shadowed_numbers(volumes: &[VolumeInfo], wanted: &[String]) -> Vec<ShadowedNumber> {
    let shadowed = |name: &String| {
        let other = volumes[numbered(volumes, name)?].name.clone();
        named(volumes, name).map(|_| ShadowedNumber { name: name.clone(), other })
    };
    wanted.iter().filter_map(shadowed).collect()
}

/// The name of a volume that is also the number of another volume. It selects the volume with that
/// name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShadowedNumber {
    /// The name.
    pub name: String,
    /// Name of the volume with that number.
    pub other: String,
}

/// Splits a list of names at its commas. A comma that is part of a name has a backslash in front of it.
///
/// ```
/// # use forebay_trace::split_names;
/// assert_eq!(split_names("db,web"), ["db", "web"]);
/// assert_eq!(split_names(r"a\,b,c:\d"), ["a,b", r"c:\d"]);
/// ```
pub fn split_names(list: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut rest = list;
    while let Some((name, more)) = rest.split_once(',') {
        let last = names.last_mut().expect("there is always one");
        match name.strip_suffix('\\') {
            Some(name) => *last += &format!("{name},"),
            None => {
                *last += name;
                names.push(String::new());
            }
        }
        rest = more;
    }
    *names.last_mut().expect("there is always one") += rest;
    names
}

fn named(volumes: &[VolumeInfo], wanted: &str) -> Option<usize> {
    volumes.iter().position(|volume| volume.name == wanted)
}

/// The volume that this number can select.
fn numbered(volumes: &[VolumeInfo], wanted: &str) -> Option<usize> {
    let number = wanted.parse::<usize>().ok().filter(|number| number.to_string() == wanted)?;
    let name = &volumes.get(number)?.name;
    let numeric = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    (!numeric).then_some(number)
}

/// Returns only the requests of some volumes, and only a limited number of them.
pub(crate) struct Selected<R> {
    inner: R,
    wanted: Vec<String>,
    /// For each volume number known so far, whether it is wanted.
    chosen: Vec<bool>,
    left: u64,
}

impl<R: TraceReader> Selected<R> {
    pub(crate) fn new(inner: R, wanted: Vec<String>, limit: Option<u64>) -> Self {
        Selected { inner, wanted, chosen: Vec::new(), left: limit.unwrap_or(u64::MAX) }
    }

    /// Decides which of the newly appeared volumes are wanted.
    ///
    /// # Errors
    /// If a new volume has a name that was taken for the number of another volume, whose requests
    /// have already been returned.
    fn choose(&mut self) -> Result<()> {
        let volumes = &self.inner.metadata().volumes;
        if self.chosen.len() == volumes.len() {
            return Ok(());
        }
        let by_number = |name: &&String| {
            let number = numbered(volumes, name).filter(|&n| self.chosen.get(n) == Some(&true))?;
            let (other, late) = (&volumes[number].name, named(volumes, name)?);
            (late >= self.chosen.len() && !self.wanted.contains(other)).then_some(other)
        };
        if let Some((name, other)) = self.wanted.iter().find_map(|w| Some((w, by_number(&w)?))) {
            return Err(TraceError::Options(format!(
                "`{name}` is ambiguous: a volume of this name appears after requests of volume \
                 number {name}, which is called {other}. To read {other}, use its name; to read \
                 volume `{name}`, first convert the trace to Parquet, which lists all volumes at \
                 its start"
            )));
        }
        for n in self.chosen.len()..volumes.len() {
            self.chosen.push(self.wanted.iter().any(|wanted| is_wanted(volumes, n, wanted)));
        }
        Ok(())
    }

    /// Checks, at the end of the trace, that all wanted volumes appeared.
    fn check_names(&self) -> Result<()> {
        let volumes = &self.inner.metadata().volumes;
        let there = |w: &str| named(volumes, w).or_else(|| numbered(volumes, w)).is_some();
        let missing = self.wanted.iter().filter(|w| !there(w)).map(|w| format!("`{w}`"));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        let known: Vec<_> = volumes.iter().take(20).map(|v| v.name.as_str()).collect();
        Err(TraceError::Options(format!(
            "the trace has no volume {}; it has {}{}",
            missing.join(", "),
            known.join(", "),
            if volumes.len() > 20 { ", ..." } else { "" }
        )))
    }
}

impl<R: TraceReader> TraceReader for Selected<R> {
    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
    fn progress(&self) -> Progress {
        self.inner.progress()
    }
    fn shadowed_numbers(&self) -> Vec<ShadowedNumber> {
        shadowed_numbers(&self.inner.metadata().volumes, &self.wanted)
    }
    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        if self.left == 0 {
            batch.clear();
            return Ok(0);
        }
        loop {
            let mut read = self.inner.read_batch(batch);
            if !self.wanted.is_empty() {
                read = self.choose().and(read);
                let chosen = &self.chosen;
                batch.retain(|b, i| chosen.get(b.volume[i] as usize) == Some(&true));
            }
            if batch.len() as u64 >= self.left {
                // Nothing after the limit matters, not even an error.
                batch.truncate(self.left as usize);
                self.left = 0;
                return Ok(batch.len());
            }
            self.left -= batch.len() as u64;
            match read {
                Ok(0) => return self.check_names().map(|()| 0),
                Ok(_) if batch.is_empty() => {}
                Ok(_) => return Ok(batch.len()),
                Err(e) => return Err(e),
            }
        }
    }
}
