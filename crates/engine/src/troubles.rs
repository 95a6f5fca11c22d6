//! What operators should hear without asking.

use forebay_block::Volume;

use crate::engine::Engine;
use crate::status;

/// Most unreadable blocks that a message names.
const UNREADABLE_SHOWN: usize = 10;

/// What [`Engine::troubles`] has told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    errors: Vec<u64>,
    suspended: Vec<bool>,
    lasting: Vec<String>,
}

impl Engine {
    /// What should be told to an operator who is not asking: what fails, or has failed since
    /// `told` was made, which takes note of that.
    pub fn troubles(&self, told: &mut Told) -> Vec<String> {
        let core = self.shared.lock_anyway();
        let mut troubles = Vec::new();
        told.errors.resize(self.volumes().len(), 0);
        for (volume, told) in self.volumes().iter().zip(&mut told.errors) {
            let errors = core.cache.volume_stats(volume.volume).map_or(0, |s| s.backing_errors);
            let failure = core.cache.last_backing_failure(volume.volume);
            if let (Some(failure), true) = (failure, errors > *told) {
                let (name, new) = (&volume.name, errors - *told);
                troubles.push(format!(
                    "the backing store of volume {name} failed {new} operations: {failure}"
                ));
                *told = errors;
            }
        }
        told.suspended.resize(self.volumes().len(), false);
        for (volume, told) in self.volumes().iter().zip(&mut told.suspended) {
            let (name, suspended) = (&volume.name, core.cache.suspended(volume.volume));
            if suspended.is_some() != *told {
                troubles.push(match suspended {
                    Some(error) => format!(
                        "writes to volume {name} fail until its backing store takes what is dirty: it \
                         has failed for longer than flush.give_up_after ({error}). It is tried every \
                         five seconds, and by `forebay ctl resume`"
                    ),
                    None => format!("the backing store of volume {name} takes writes again"),
                });
                *told = suspended.is_some();
            }
        }
        let given_up = status::given_up(&core.cache, self.volumes());
        drop(core);
        let lasting = given_up.into_iter().chain(self.unreadable());
        for trouble in lasting {
            if !told.lasting.contains(&trouble) {
                troubles.push(trouble.clone());
                told.lasting.push(trouble);
            }
        }
        troubles
    }

    /// What cannot be read from flash, in words, if anything.
    pub(crate) fn unreadable(&self) -> Option<String> {
        let blocks: Vec<_> = self.shared.lock_anyway().cache.unreadable().collect();
        let name = |volume: Volume| {
            let of = self.volumes().iter().find(|v| v.volume == volume);
            of.map_or_else(|| volume.0.to_string(), |v| v.name.clone())
        };
        let (shown, more) = blocks.split_at(blocks.len().min(UNREADABLE_SHOWN));
        let (first, _) = shown.split_first()?;
        let mut text = format!("the newest data of block {} of volume {}", first.1, name(first.0));
        for &(volume, block) in &shown[1..] {
            text += &format!(", block {block} of volume {}", name(volume));
        }
        if !more.is_empty() {
            text += &format!(" and {} more", more.len());
        }
        Some(text + " cannot be read from flash, until it is written or trimmed")
    }
}
